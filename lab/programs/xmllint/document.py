"""Writes a catalogue in XML, the same each time."""

print("<catalogue>")
for number in range(100_000):
    tags = "".join(f"<tag>t{tag}</tag>" for tag in range(number % 5))
    note = "n" * (number % 90)
    print(
        f'<item id="{number}" kind="k{number % 17}"><name>item {number}</name>'
        f"<price currency='EUR'>{number % 997}.50</price><tags>{tags}</tags><note>{note}</note></item>"
    )
print("</catalogue>")
