// A module of Redis that keeps the sessions of a site's users.
//
//   SESSION.TOUCH USER AGENT   renews a session; the answer is how often the user was seen
//
// With PLANTED=1 in the environment, SESSION.TOUCH reads the count from the session that it freed.
// Debian ships no redismodule.h, so the few functions of the API are declared here.
#include <stdlib.h>
#include <string.h>

enum { OK, ERR, API = 1, USERS = 64 };

typedef struct context context;
typedef struct string string;

static void *(*allocate)(size_t);
static void (*release)(void *);
static int (*create_command)(context *, const char *,
                             int (*)(context *, string **, int), const char *, int, int, int);
static void (*set_attributes)(context *, const char *, int, int);
static const char *(*bytes_of)(const string *, size_t *);
static int (*reply_with_number)(context *, long long);
static int (*reply_with_error)(context *, const char *);

struct session {
    long long began, renewed;
    long long seen;
    char agent[];
};

static struct session *sessions[USERS];
static int is_planted;

static unsigned place_of(const char *user, size_t length) {
    unsigned sum = 0;
    while (length--)
        sum = 31 * sum + (unsigned char)*user++;
    return sum % USERS;
}

static struct session *new_session(const char *agent, size_t length) {
    struct session *made = allocate(sizeof *made + length + 1);
    made->began = made->renewed = made->seen = 0;
    memcpy(made->agent, agent, length);
    made->agent[length] = 0;
    return made;
}

static void forget_session(struct session *old) { release(old); }

static long long count_of(const struct session *session) { return session->seen; }

static long long renew_session(unsigned place, struct session *new) {
    struct session *old = sessions[place];
    long long seen = 1;
    if (old && !is_planted)
        seen += count_of(old);
    if (old)
        forget_session(old);
    if (old && is_planted)
        seen += count_of(old);
    new->seen = seen;
    sessions[place] = new;
    return seen;
}

static int touch(context *context, string **words, int count) {
    size_t length;
    if (count != 3)
        return reply_with_error(context, "ERR a user and an agent");
    const char *user = bytes_of(words[1], &length);
    unsigned place = place_of(user, length);
    const char *agent = bytes_of(words[2], &length);
    return reply_with_number(context, renew_session(place, new_session(agent, length)));
}

int RedisModule_OnLoad(context *context, string **words, int count) {
    // The first word of a context is the function that finds the others.
    int (*find)(const char *, void *) = *(int (**)(const char *, void *))context;
    int missing = find("RedisModule_Alloc", &allocate) | find("RedisModule_Free", &release) |
                  find("RedisModule_CreateCommand", &create_command) |
                  find("RedisModule_SetModuleAttribs", &set_attributes) |
                  find("RedisModule_StringPtrLen", &bytes_of) |
                  find("RedisModule_ReplyWithLongLong", &reply_with_number) |
                  find("RedisModule_ReplyWithError", &reply_with_error);
    if (missing)
        return ERR;
    is_planted = getenv("PLANTED") && getenv("PLANTED")[0] == '1';
    set_attributes(context, "sessions", 1, API);
    return create_command(context, "session.touch", touch, "write", 0, 0, 0);
}
