"""Read a table of 1,000 columns from Parquet, in turn whole, in part and in batches."""

import hashlib
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROUNDS = 6
PATH = sys.argv[1]


def figures(table):
    """One figure a column: all that the job keeps."""
    found = {}
    for name in table.column_names:
        column = table.column(name)
        text = pa.types.is_string(column.type)
        found[name] = pc.max(column).as_py() if text else pc.sum(column).as_py()
    return found


def main():
    pa.set_cpu_count(4)
    pa.set_io_thread_count(8)
    assert pa.default_memory_pool().backend_name == "system"
    digest = hashlib.sha256()
    kept = []
    print("work", flush=True)
    for turn in range(ROUNDS):
        table = pq.read_table(PATH)
        kept.append(figures(table))
        # A report of this round: sort by one column, keep every tenth row, as pandas would.
        order = pc.sort_indices(table.column("c3"))
        report = table.take(order.slice(turn, len(order) // 10))
        kept.append(figures(report))
        del table, order, report
        # The same file with a third of its columns, in batches of changing size.
        names = [f"c{i}" for i in range(turn, 1000, 3)]
        for batch in pq.ParquetFile(PATH).iter_batches(2000 + 1500 * turn, columns=names):
            kept.append(batch.num_rows)
    digest.update(repr(kept).encode())
    live = pa.total_allocated_bytes()
    print("check", digest.hexdigest()[:16])
    print("live", live)
    print("rest", flush=True)
    sys.stdin.read()


main()
