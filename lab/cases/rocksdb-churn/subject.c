// A store of 400,000 values of 200 to 1,800 bytes, compressed, behind a block cache of 128 MiB and
// memtables of 8 MiB. Four threads read random keys and short ranges, so that blocks come and go in
// the cache, while a fifth overwrites values. Then the program is idle, with the store open.
#include <pthread.h>
#include <rocksdb/c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEYS = 400000, READERS = 4, READS = 150000, WRITES = 300000, RANGE = 16, MIB = 1 << 20 };

static rocksdb_t *store;
static uint64_t sums[READERS];

static void say(const char *line) {
    puts(line);
    fflush(stdout);
}

static void ensure(char *error) {
    if (error) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

static uint64_t next(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

static size_t key_of(char key[16], uint64_t number) {
    return (size_t)snprintf(key, 16, "key%08llu", (unsigned long long)number);
}

// A value whose length and first byte its key determines, whoever writes it.
static void put(rocksdb_writeoptions_t *options, uint64_t number, uint64_t *seed) {
    static const size_t least = 200, most = 1800;
    uint64_t own = number * 2654435761u + 1;
    size_t length = least + next(&own) % (most - least);
    char key[16], value[1800], *error = NULL;
    for (size_t at = 0; at < length; at += 8) {
        // Half of it repeats, as text does.
        uint64_t word = at % 16 ? 0x2020202020202020u : next(seed);
        memcpy(value + at, &word, length - at < 8 ? length - at : 8);
    }
    value[0] = (char)number;
    size_t bytes = key_of(key, number);
    rocksdb_put(store, options, key, bytes, value, length, &error);
    ensure(error);
}

static void *read_keys(void *argument) {
    uintptr_t number = (uintptr_t)argument;
    uint64_t seed = 88172645463325252u + number, sum = 0;
    rocksdb_readoptions_t *options = rocksdb_readoptions_create();
    for (int n = 0; n < READS; n++) {
        char key[16], *error = NULL;
        size_t bytes = key_of(key, next(&seed) % KEYS), length;
        if (n % 64) {
            char *value = rocksdb_get(store, options, key, bytes, &length, &error);
            ensure(error);
            sum += value ? length + (unsigned char)value[0] : 0;
            rocksdb_free(value);
            continue;
        }
        rocksdb_iterator_t *iterator = rocksdb_create_iterator(store, options);
        rocksdb_iter_seek(iterator, key, bytes);
        for (int step = 0; step < RANGE && rocksdb_iter_valid(iterator); step++) {
            rocksdb_iter_value(iterator, &length);
            sum += length;
            rocksdb_iter_next(iterator);
        }
        rocksdb_iter_destroy(iterator);
    }
    rocksdb_readoptions_destroy(options);
    sums[number] = sum;
    return NULL;
}

static void *overwrite(void *argument) {
    uint64_t seed = 362436069u;
    for (int n = 0; n < WRITES; n++)
        put(argument, next(&seed) % KEYS, &seed);
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_write_buffer_size(options, 8 * MIB);
    rocksdb_options_set_max_background_jobs(options, 2);
    rocksdb_options_set_compression(options, rocksdb_lz4_compression);
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_cache_t *cache = rocksdb_cache_create_lru(128 * MIB);
    rocksdb_block_based_options_set_block_cache(table, cache);
    rocksdb_block_based_options_set_block_size(table, 16 * 1024);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
    rocksdb_options_set_block_based_table_factory(options, table);
    char *error = NULL;
    store = rocksdb_open(options, arguments[1], &error);
    ensure(error);
    rocksdb_writeoptions_t *writes = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(writes, 1);
    uint64_t seed = 521288629u;
    for (uint64_t n = 0; n < KEYS; n++)
        put(writes, n, &seed);

    say("work");
    pthread_t readers[READERS], writer;
    pthread_create(&writer, NULL, overwrite, writes);
    for (uintptr_t n = 0; n < READERS; n++)
        pthread_create(&readers[n], NULL, read_keys, (void *)n);
    pthread_join(writer, NULL);
    uint64_t sum = 0;
    for (int n = 0; n < READERS; n++) {
        pthread_join(readers[n], NULL);
        sum += sums[n];
    }
    // Background work of the store is over before the rest.
    rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
    rocksdb_flush(store, flush, &error);
    ensure(error);
    rocksdb_cancel_all_background_work(store, 1);
    printf("live %zu\ncheck %016llx\n", rocksdb_cache_get_usage(cache), (unsigned long long)sum);
    say("rest");
    char byte;
    while (read(0, &byte, 1) > 0) {}
    rocksdb_close(store);
    return 0;
}
