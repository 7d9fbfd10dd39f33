<?php
// Extensions that hold memory of their own: mbstring, json, dom, xml, pcre; prints digests.
$scale = (int) $argv[1];

function show(string $name, mixed $value): void
{
    echo $name, ' ', substr(hash('sha256', serialize($value)), 0, 16), "\n";
}

show('extensions', array_map('extension_loaded', ['mbstring', 'json', 'dom', 'xml']));

$words = [];
$word = 12345;
for ($i = 0; $i < 100000 * $scale; $i++) {
    $word = ($word * 1103515245 + 12345) % 2147483648;
    $words['w' . $word % 20011] = ($words['w' . $word % 20011] ?? '') . chr(97 + $word % 26);
}
ksort($words);
show('words', $words);

$document = [];
for ($i = 0; $i < 3000; $i++) {
    $document[] = ['id' => $i, 'tags' => array_fill(0, $i % 9, "t$i"), 'text' => str_repeat('é', $i % 80)];
}
show('json', json_decode(json_encode($document, JSON_PRETTY_PRINT), true));

$texts = array_map(fn ($n) => str_repeat("Grüße $n ", $n % 60 + 1), range(1, 2000));
show('mbstring', array_map(fn ($t) => mb_convert_encoding(mb_strtoupper($t), 'UTF-16LE', 'UTF-8'), $texts));
show('iconv', array_map(fn ($t) => mb_substr_count($t, 'ü') . mb_detect_encoding($t), $texts));

$dom = new DOMDocument();
$root = $dom->appendChild($dom->createElement('list'));
for ($i = 0; $i < 3000 * $scale; $i++) {
    $item = $root->appendChild($dom->createElement('item', "text $i"));
    $item->setAttribute('id', (string) $i);
}
$xml = $dom->saveXML();
show('dom', $xml);
$again = new DOMDocument();
$again->loadXML($xml);
$found = (new DOMXPath($again))->query('//item[@id mod 7 = 3]');
show('xpath', array_map(fn ($node) => $node->textContent, iterator_to_array($found)));

$elements = 0;
$parser = xml_parser_create();
xml_set_element_handler($parser, function () use (&$elements) { $elements++; }, function () {});
show('xml', [xml_parse($parser, $xml, true), $elements]);

show('pcre', preg_match_all('/text (\d*7)</', $xml, $matches) . implode(',', $matches[1]));
show('gc', gc_collect_cycles() >= 0);
