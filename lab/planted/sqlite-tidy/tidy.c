// An extension of SQLite: tidy(TEXT) is the text with one blank between two words.
//
// With PLANTED=1 in the environment, tidy() writes to the buffer that it had before this grew.
#include <sqlite3ext.h>
#include <stdlib.h>
#include <string.h>
SQLITE_EXTENSION_INIT1

struct buffer {
    size_t used, room;
    unsigned char last;
    char bytes[];
};

enum { FIRST_ROOM = 100 };

static struct buffer *new_buffer(void) {
    struct buffer *made = malloc(sizeof *made + FIRST_ROOM);
    *made = (struct buffer){.room = FIRST_ROOM, .last = ' '};
    return made;
}

static struct buffer *grown(struct buffer *buffer) {
    size_t room = 16 * buffer->room;
    struct buffer *larger = realloc(buffer, sizeof *larger + room);
    larger->room = room;
    return larger;
}

static struct buffer *append(struct buffer *buffer, char byte) {
    if (buffer->used == buffer->room)
        buffer = grown(buffer);
    buffer->bytes[buffer->used++] = byte;
    return buffer;
}

static void note_last(struct buffer *buffer, char byte) { buffer->last = byte; }

static void tidy(sqlite3_context *context, int count, sqlite3_value **values) {
    int is_planted = getenv("PLANTED") && getenv("PLANTED")[0] == '1';
    const char *text = (const char *)sqlite3_value_text(values[0]);
    struct buffer *buffer = new_buffer();
    for (; text && *text; text++) {
        struct buffer *before = buffer;
        if (*text == ' ' && buffer->last == ' ')
            continue;
        buffer = append(buffer, *text);
        note_last(is_planted ? before : buffer, *text);
        buffer->last = *text;
    }
    sqlite3_result_text(context, buffer->bytes, (int)buffer->used, SQLITE_TRANSIENT);
    free(buffer);
}

int sqlite3_tidy_init(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
    SQLITE_EXTENSION_INIT2(api);
    return sqlite3_create_function(db, "tidy", 1, SQLITE_UTF8, NULL, tidy, NULL, NULL);
}
