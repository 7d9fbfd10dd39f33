<?php
// GET ?rows=N&seed=S: reads a table of N rows that a client sent as JSON, makes cells and groups of
// it and answers with their sums. Small pages come the same way.

mt_srand((int) $_GET['seed']);
$rows = (int) $_GET['rows'];

$parts = [];
for ($row = 0; $row < $rows; $row++) {
    $name = substr(md5((string) mt_rand(0, 5000)), 0, 6 + $row % 20);
    $parts[] = "{\"id\":$row,\"name\":\"$name\",\"day\":" . mt_rand(1, 365) . ',"sum":'
        . mt_rand(1, 99999) . '}';
}
$json = '[' . implode(',', $parts) . ']';
unset($parts);

$cells = [];
foreach (json_decode($json, true) as $row) {
    $row['note'] = str_repeat($row['name'], 1 + $row['day'] % 5);
    $cells[] = $row;
}
$groups = [];
foreach ($cells as $cell) {
    $groups[$cell['name']][$cell['day']][] = $cell;
}
ksort($groups);

header('content-type: text/plain');
$total = 0;
foreach ($groups as $name => $days) {
    $sum = 0;
    foreach ($days as $list) {
        foreach ($list as $cell) {
            $sum += $cell['sum'] + strlen($cell['note']);
        }
    }
    $total += $sum;
    if (count($groups) < 100) {
        echo "$name $sum\n";
    }
}
echo count($groups), " groups, $total\n";
