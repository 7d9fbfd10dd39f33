/* What SQLite does to a heap: four threads, each with a database in memory. Prints their sums. */
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4 };
static const char *const WORK[] = {
    "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, value REAL)",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
    " INSERT INTO t SELECT i, hex(zeroblob(i % 300)) || i, i * 0.5 FROM n",
    "CREATE INDEX by_name ON t (name)",
    "UPDATE t SET name = name || name WHERE id % 3 = 0",
    "DELETE FROM t WHERE id % 5 = 0",
    "VACUUM",
};

static void check(int answer, sqlite3 *database) {
    if (answer == SQLITE_OK || answer == SQLITE_ROW) return;
    fprintf(stderr, "%s\n", sqlite3_errmsg(database));
    exit(1);
}

static void *work(void *sum) {
    sqlite3 *database;
    sqlite3_stmt *query;
    check(sqlite3_open(":memory:", &database), NULL);
    for (size_t i = 0; i < sizeof WORK / sizeof *WORK; i++) check(sqlite3_exec(database, WORK[i], NULL, NULL, NULL), database);
    check(sqlite3_prepare_v2(database,
                             "SELECT sum(length(name)) FROM (SELECT DISTINCT name FROM t ORDER BY substr(name, 7), id)", -1,
                             &query, NULL),
          database);
    check(sqlite3_step(query), database);
    *(sqlite3_int64 *)sum = sqlite3_column_int64(query, 0);
    sqlite3_finalize(query);
    sqlite3_close(database);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    sqlite3_int64 sums[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, &sums[i]) != 0) return 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) printf("%lld\n", (long long)sums[i]);
    return 0;
}
