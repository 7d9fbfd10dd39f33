"""Write the Parquet file of the case: 1,000 columns, 24,000 rows in 6 row groups, Snappy."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = 1000
ROWS = 24_000

rng = np.random.default_rng(1111)
columns = {}
for i in range(COLUMNS):
    if i % 10 == 0:  # text with few values: a dictionary page
        words = np.array([f"city-{i}-{k:05d}" for k in range(300)])
        columns[f"c{i}"] = pa.array(words[rng.integers(0, len(words), ROWS)])
    elif i % 10 == 1:  # text that differs in each row
        numbers = rng.integers(0, 10**9, ROWS)
        columns[f"c{i}"] = pa.array([f"order-{n:x}" for n in numbers])
    elif i % 2:
        columns[f"c{i}"] = pa.array(rng.random(ROWS))
    else:
        columns[f"c{i}"] = pa.array(rng.integers(0, 100_000, ROWS))
pq.write_table(pa.table(columns), sys.argv[1], row_group_size=4000, compression="snappy")
