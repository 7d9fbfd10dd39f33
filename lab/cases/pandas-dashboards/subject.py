"""Sessions of a dashboard: each user has a thread, a data frame and a tree of widgets."""

import gc
import hashlib
import io
import sys
import threading

import ipywidgets as widgets
import numpy as np
import pandas as pd

USERS = 18
AT_ONCE = 12
STAY = 2  # users that are still there when the day is over


def load(rng, rows):
    """The user's data, parsed from CSV as an upload would be."""
    frame = pd.DataFrame(
        {
            "site": rng.integers(0, 400, rows),
            "year": rng.integers(2000, 2026, rows),
            "area": rng.random(rows).round(4),
            "cost": rng.integers(0, 10_000, rows),
        }
    )
    text = io.StringIO()
    frame.to_csv(text, index=False)
    text.seek(0)
    frame = pd.read_csv(text)
    frame["name"] = "site-" + frame["site"].astype(str) + "-" + frame["year"].astype(str)
    return frame


def panel(table):
    """The widgets of a table: a row of labels and a slider for each of its first rows."""
    rows = []
    for name, values in table.head(40).iterrows():
        labels = [widgets.Label(value=f"{value:.3f}") for value in values[:6]]
        slider = widgets.FloatSlider(value=float(values.iloc[0]), min=-1e9, max=1e9)
        rows.append(widgets.HBox([widgets.HTML(value=f"<b>{name}</b>"), slider, *labels]))
    return widgets.VBox(rows)


def close(widget):
    """Close a tree of widgets with their layouts and styles, as the end of a session does."""
    for child in getattr(widget, "children", ()):
        close(child)
    for part in ("style", "layout"):
        if widget.has_trait(part):
            getattr(widget, part).close()
    widget.close()


class Session:
    def __init__(self, user):
        self.user = user
        self.rng = np.random.default_rng(275 + user)
        self.digest = None
        self.open = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        frame = load(self.rng, 40_000 + int(self.rng.integers(0, 60_000)))
        digest = hashlib.sha256()
        views = []
        for turn in range(3):  # what the user clicks
            part = frame[frame["cost"] > turn * 1000].copy()
            part["share"] = part["area"] / part.groupby("site")["area"].transform("sum")
            table = part.pivot_table(index="site", columns="year", values="cost", aggfunc="sum")
            merged = part.merge(table.sum(axis=1).rename("total"), on="site")
            ranked = merged.sort_values(["total", "name"]).groupby("name")["share"].sum()
            digest.update(ranked.round(6).to_csv().encode())
            for _, _, box in views[:-1]:
                close(box)
            views = views[-1:] + [(table, ranked, panel(table))]
        self.digest = digest.hexdigest()
        self.kept = (frame, views)
        self.open.wait()  # the user looks at the page, then closes it
        for _, _, box in views:
            close(box)
        self.kept = frame = views = None

    def close(self):
        self.open.set()
        self.thread.join()


def main():
    digests = [None] * USERS
    present = []
    arrivals = np.random.default_rng(1).permutation(USERS)
    print("work", flush=True)
    for user in arrivals.tolist():
        while len(present) >= AT_ONCE:
            leaver = present.pop((user * 7) % len(present))
            wait_for(leaver, digests)
        present.append(Session(user))
        wait_for_frame(present)
    while len(present) > STAY:
        wait_for(present.pop(0), digests)
    for session in present:
        while session.digest is None:
            session.thread.join(0.01)
        digests[session.user] = session.digest
    gc.collect()
    print("check", hashlib.sha256(repr(digests).encode()).hexdigest()[:16])
    print("rest", flush=True)
    sys.stdin.read()
    for session in present:
        session.close()


def wait_for_frame(present):
    """No more than four sessions compute at once."""
    while sum(session.digest is None for session in present) > 3:
        present[0].thread.join(0.01)


def wait_for(session, digests):
    while session.digest is None:
        session.thread.join(0.01)
    session.close()
    digests[session.user] = session.digest


main()
