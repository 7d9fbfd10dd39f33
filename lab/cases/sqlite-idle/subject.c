// A store of 120,000 documents. Twelve worker threads, four of them at a time, each open a
// connection with a cache of 64 MiB and temporary tables in memory, sort and join, and
// close it. Then the program is idle, with the threads waiting and no connection open.
#include <pthread.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 12, AT_ONCE = 4, DOCUMENTS = 120000 };

static const char *store;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int running, done, over;
static uint64_t digest;

static void say(const char *line) {
    puts(line);
    fflush(stdout);
}

static void run(sqlite3 *database, const char *statements) {
    char *error = NULL;
    if (sqlite3_exec(database, statements, NULL, NULL, &error) != SQLITE_OK) {
        fprintf(stderr, "%s: %s\n", statements, error);
        exit(1);
    }
}

static sqlite3 *open_store(void) {
    sqlite3 *database;
    if (sqlite3_open(store, &database) != SQLITE_OK) {
        fprintf(stderr, "cannot open %s\n", store);
        exit(1);
    }
    sqlite3_busy_timeout(database, 60000);
    run(database, "PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY; PRAGMA synchronous = OFF");
    return database;
}

// The rows of a query, folded into one number.
static uint64_t fold(sqlite3 *database, const char *query, int number) {
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(database, query, -1, &statement, NULL) != SQLITE_OK) {
        fprintf(stderr, "%s: %s\n", query, sqlite3_errmsg(database));
        exit(1);
    }
    sqlite3_bind_int(statement, 1, number);
    uint64_t result = 0;
    while (sqlite3_step(statement) == SQLITE_ROW)
        result = result * 31 + (uint64_t)sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return result;
}

static void *serve(void *argument) {
    int number = (int)(intptr_t)argument;
    pthread_mutex_lock(&lock);
    while (running == AT_ONCE)
        pthread_cond_wait(&changed, &lock);
    running++;
    pthread_mutex_unlock(&lock);

    sqlite3 *database = open_store();
    uint64_t sum = fold(database, "SELECT id FROM documents ORDER BY body DESC, id LIMIT 20000 OFFSET ?1", number);
    sum += fold(database, "SELECT count(*) FROM documents a JOIN documents b ON b.id = a.parent"
                          " WHERE a.id % 12 >= ?1 GROUP BY b.title ORDER BY 1 DESC, b.title", number);
    sum += fold(database, "SELECT length(group_concat(title || ?1, ',')) FROM documents GROUP BY id % 500", number);
    sqlite3_close(database);

    pthread_mutex_lock(&lock);
    digest += sum;
    running--;
    done++;
    pthread_cond_broadcast(&changed);
    while (!over)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    store = arguments[1];
    sqlite3 *database = open_store();
    char fill[512];
    snprintf(fill, sizeof fill,
             "CREATE TABLE documents (id INTEGER PRIMARY KEY, parent INTEGER, title TEXT, body TEXT);"
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
             " INSERT INTO documents SELECT i, i * 7919 %% %d + 1, 'title ' || i * 31 %% 1000,"
             " hex(i * 2654435761 %% 4294967296) || substr(hex(zeroblob(300)), 1, 100 + i %% 500) FROM n;"
             "CREATE INDEX parents ON documents (parent)",
             DOCUMENTS, DOCUMENTS);
    run(database, fill);
    sqlite3_close(database);

    say("work");
    pthread_t threads[THREADS];
    for (intptr_t n = 0; n < THREADS; n++)
        pthread_create(&threads[n], NULL, serve, (void *)n);
    pthread_mutex_lock(&lock);
    while (done < THREADS)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    printf("check %016llx\n", (unsigned long long)digest);
    say("rest");
    char byte;
    while (read(0, &byte, 1) > 0) {}
    pthread_mutex_lock(&lock);
    over = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    return 0;
}
