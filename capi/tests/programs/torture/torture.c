/* Random rounds of everything that could make calloc give a byte that is not zero, by threads
   and their children; every byte of every calloc is compared. See `usage` for the arguments. */
#include "modes.h"

static const char usage[] =
    "torture [--rounds N] [--threads N] [--seed N] [--max-bytes N] [--mode NAME[,NAME…]]\n"
    "        [--remap] [--no-children] [--plant N]\n"
    "modes: plain close closefrom replace hidden nofile nondumpable locked seccomp\n"
    "       seccomp-call;\n"
    "       NAME-late comes into force after some rounds\n"
    "--max-bytes   the most that the blocks of one process hold\n"
    "--remap       files are mapped over pages of blocks, which are then freed\n"
    "--no-children no fork, vfork or clone\n"
    "--plant N     calloc number N gets a wrong byte, which must be found\n"
    "exit: 0 every byte right, 77 the mode cannot be had here, else a failure\n";

static void (*early[8])(void), (*late[8])(void), (*often[8])(struct worker *);
static int early_count, late_count, often_count;

static void attack_all(struct worker *worker) {
    /* Not while a descriptor of the program itself is in the making. */
    if (pthread_mutex_trylock(&descriptors) != 0) return;
    for (int i = 0; i < often_count; i++) often[i](worker);
    pthread_mutex_unlock(&descriptors);
}

__attribute__((noreturn)) static void misused(const char *what) {
    dprintf(2, "torture: not understood: %s\n%s", what, usage);
    _exit(2);
}

static void choose_mode(const char *name, size_t length) {
    int is_late = length > 5 && !memcmp(name + length - 5, "-late", 5);
    size_t plain = is_late ? length - 5 : length;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const struct mode *mode = &modes[i];
        if (strlen(mode->name) != plain || memcmp(mode->name, name, plain)) continue;
        if (mode->once && is_late) late[late_count++] = mode->once;
        if (mode->once && !is_late) early[early_count++] = mode->once;
        if (mode->often) often[often_count++] = mode->often;
        if (mode->once || !is_late) return;
    }
    misused(name);
}

static void choose_modes(const char *names) {
    for (int count = 0; *names; count++) {
        if (count == 8) misused("more than eight modes");
        size_t length = strcspn(names, ",");
        choose_mode(names, length);
        names += length + (names[length] == ',');
    }
}

static unsigned long number(const char *name, const char *text) {
    char *end = NULL;
    unsigned long value = text ? strtoul(text, &end, 10) : 0;
    if (!text || end == text || *end) misused(name);
    return value;
}

static void read_arguments(char **argument) {
    const struct {
        const char *name;
        unsigned long *value;
    } numbers[] = {
        {"--rounds", &options.rounds},       {"--threads", &options.threads},
        {"--seed", &options.seed},           {"--plant", &options.plant},
        {"--max-bytes", &options.max_bytes},
    };
    for (argument++; *argument; argument++) {
        const char *name = *argument;
        size_t known = 0;
        while (known < 5 && strcmp(name, numbers[known].name)) known++;
        if (known < 5) {
            *numbers[known].value = number(name, argument[1]);
            argument++;
        } else if (!strcmp(name, "--remap")) {
            options.remap = 1;
        } else if (!strcmp(name, "--no-children")) {
            options.no_children = 1;
        } else if (!strcmp(name, "--mode") && argument[1]) {
            choose_modes(*++argument);
        } else {
            misused(name);
        }
    }
    if (options.threads < 1 || options.threads > 64) misused("--threads is 1 to 64");
}

static void *work(void *number) {
    struct worker worker = {.state = mixed(options.seed) + mixed((uintptr_t)number)};
    rounds(&worker, ~0ul);
    for (int i = 0; i < SLOTS; i++)
        if (worker.slots[i]) give_back(worker.slots[i], &worker.state);
    return NULL;
}

/* The library has asked, and been right, before a late mode comes into force. */
static void warm_up(void) {
    struct worker worker = {.state = mixed(options.seed)};
    attack = NULL;
    for (int i = 0; i < 40; i++) {
        struct block *block = take(&worker.state, 256 << 10 << i % 6, ZERO);
        if (block) give_back(block, &worker.state);
    }
    rounds(&worker, options.rounds / 10);
    for (int i = 0; i < SLOTS; i++)
        if (worker.slots[i]) give_back(worker.slots[i], &worker.state);
}

/* One thread is the main one, so that the process has no other and a raw clone may allocate. */
static void run(void) {
    pthread_t ids[64];
    if (options.threads == 1) {
        work((void *)1);
        return;
    }
    for (uintptr_t i = 0; i < options.threads; i++)
        CHECK(pthread_create(&ids[i], NULL, work, (void *)(i + 1)) == 0);
    for (uintptr_t i = 0; i < options.threads; i++) CHECK(pthread_join(ids[i], NULL) == 0);
}

static void report(void) {
    unsigned long done = smaller(totals->rounds, options.rounds);
    dprintf(1,
            "%lu rounds, %lu callocs, %lu MiB compared, %lu children, %lu descriptors attacked, "
            "%lu refused, seed %lu\n",
            done, totals->callocs, totals->checked >> 20, totals->children, totals->attacks,
            totals->refused, options.seed);
    CHECK(done == options.rounds && totals->callocs > done / 8);
    /* Half of the requests must be served, or little was tested. */
    CHECK(totals->refused < totals->callocs);
}

int main(int count, char **arguments) {
    struct rlimit no_core = {0, 0};
    (void)count;
    read_arguments(arguments);
    CHECK(served_by_neap("malloc"));
    CHECK(setrlimit(RLIMIT_CORE, &no_core) == 0);
    /* This machine's programs cannot load the library of the emulated one. */
    if (getenv("EMULATOR_UNDER_TEST")) may_exec = 0;
    totals = mmap(NULL, sizeof *totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(totals != MAP_FAILED);
    learn_proc();
    start_sleeper();
    for (int i = 0; i < early_count; i++) early[i]();
    if (late_count) warm_up();
    for (int i = 0; i < late_count; i++) late[i]();
    if (often_count) attack = attack_all;
    run();
    for (int i = 0; i < SHARED; i++)
        if (shared[i]) give_back(shared[i], &(uint64_t){options.seed});
    end_sleeper();
    report();
    return 0;
}
