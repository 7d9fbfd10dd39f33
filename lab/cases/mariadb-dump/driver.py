"""Three nights: 24 connections query for a while, then mariadb-dump reads every table."""

import hashlib
import os
import random
import subprocess
import sys
import threading
import time

WORK = os.environ["CASE_WORK"]
SOCKET = WORK + "/socket"
os.environ["PATH"] += ":/usr/sbin"
SCHEMAS, TABLES, ROWS = 12, 50, 120
CONNECTIONS, QUERIES, NIGHTS = 24, 20, 3


def output(command, sql=""):
    done = subprocess.run(command, input=sql, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr[-500:]}")
    return done.stdout


def client(sql, *options):
    return output(["mariadb", "--no-defaults", "--socket", SOCKET, "--batch", *options], sql)


def wait_for_server():
    for _ in range(1000):
        ping = ["mariadb", "--no-defaults", "--socket", SOCKET, "-e", "select 1"]
        if subprocess.run(ping, capture_output=True).returncode == 0:
            return
        time.sleep(0.05)
    sys.exit("mariadbd does not answer")


def tables(rng):
    """600 tables of many columns, and a wide one for the queries."""
    words = [hashlib.md5(str(n).encode()).hexdigest()[: 4 + n % 20] for n in range(2000)]
    yield "SET SESSION sql_log_bin = 0;"
    for schema in range(SCHEMAS):
        yield f"CREATE DATABASE shop{schema}; USE shop{schema};"
        for table in range(TABLES):
            columns = ", ".join(f"c{n} VARCHAR(60)" for n in range(20))
            yield f"CREATE TABLE t{table} (id INT PRIMARY KEY, n INT, {columns}, KEY k (n));"
            rows = []
            for row in range(ROWS):
                cells = ", ".join(f"'{rng.choice(words)}'" for _ in range(20))
                rows.append(f"({row}, {rng.randrange(50)}, {cells})")
            yield f"INSERT INTO t{table} VALUES {', '.join(rows)};"


def fill(rng):
    """Makes the data directory by a server without the allocator."""
    data = WORK + "/data"
    user = output(["id", "-un"]).strip()
    output(["mariadb-install-db", "--no-defaults", f"--user={user}", f"--datadir={data}",
            "--skip-test-db", "--auth-root-authentication-method=normal"])
    server = subprocess.Popen(
        ["mariadbd", "--no-defaults", f"--user={user}", f"--datadir={data}", "--debug-no-sync",
         f"--socket={SOCKET}", "--skip-networking", "--skip-grant-tables"],
        stderr=subprocess.DEVNULL,
    )
    wait_for_server()
    client("\n".join(tables(rng)))
    server.terminate()
    server.wait()


def queries(connection, night):
    """What one connection asks: reports in temporary tables of 0.1 to 30 MB, and small joins."""
    rng = random.Random(connection * 100 + night)
    for number in range(QUERIES):
        schema, a, b = rng.randrange(SCHEMAS), rng.randrange(TABLES), rng.randrange(TABLES)
        columns = rng.sample(range(20), 8 if number % 10 == 0 else rng.randrange(1, 4))
        rows = ROWS if number % 10 == 0 else rng.randrange(5, 60)
        fields = ", ".join(f"a.c{n} AS a{n}, b.c{n} AS b{n}" for n in columns)
        yield f"""SELECT COUNT(*), SUM(CRC32(CONCAT(a{columns[0]}, b{columns[0]}))) FROM (
            SELECT DISTINCT {fields} FROM shop{schema}.t{a} a JOIN shop{schema}.t{b} b
            WHERE a.id < {rows} AND b.id < {rows}) AS pairs;
            SELECT a.c1, COUNT(*), GROUP_CONCAT(b.c2 ORDER BY b.id) FROM shop{schema}.t{a} a
            JOIN shop{schema}.t{b} b ON a.n = b.n GROUP BY a.id ORDER BY 2 DESC, 1, 3 LIMIT 40;"""


def dump():
    command = ["mariadb-dump", "--no-defaults", "--socket", SOCKET, "--all-databases", "--compact"]
    return output(command + ["--single-transaction", "--ignore-database=mysql"])


def main():
    fill(random.Random(7))
    open(WORK + "/ready", "w").close()
    wait_for_server()
    print("work", flush=True)
    digests = {}
    for night in range(NIGHTS):
        def connect(number):
            sql = "\n".join(queries(number, night))
            digests[night, number] = hashlib.sha256(client(sql).encode()).digest()

        clients = [threading.Thread(target=connect, args=(n,)) for n in range(CONNECTIONS)]
        for each in clients:
            each.start()
        for each in clients:
            each.join()
        digests[night, -1] = hashlib.sha256(dump().encode()).digest()
    print("check", hashlib.sha256(b"".join(digests[k] for k in sorted(digests))).hexdigest()[:16])
    print("rest", flush=True)
    sys.stdin.read()
    client("SHUTDOWN;")


main()
