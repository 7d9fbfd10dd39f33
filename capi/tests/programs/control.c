/* malloc_trim, mallopt, mallinfo, mallinfo2, malloc_info, malloc_stats. */
#include "check.h"
#include <malloc.h>

static void known_parameters_are_accepted(void) {
    static const int known[] = {M_MXFAST, M_NLBLKS, M_GRAIN, M_KEEP, M_TRIM_THRESHOLD, M_TOP_PAD,
        M_MMAP_THRESHOLD, M_MMAP_MAX, M_CHECK_ACTION, M_PERTURB, M_ARENA_TEST, M_ARENA_MAX};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) CHECK(mallopt(known[i], 1) == 1);
    CHECK(mallopt(0, 1) == 0 && mallopt(99, 1) == 0 && mallopt(-99, 1) == 0);
}

static void the_counts_follow_the_heap(void) {
    struct mallinfo2 before = mallinfo2();
    char *large = malloc(64 << 20);
    void *small[1000];
    for (int i = 0; i < 1000; i++) small[i] = malloc(1000);
    struct mallinfo2 during = mallinfo2();
    struct mallinfo narrow = mallinfo();
    CHECK(during.hblks == before.hblks + 1);
    CHECK(during.hblkhd >= before.hblkhd + (64 << 20));
    CHECK(during.uordblks >= before.uordblks + 900000);
    CHECK(during.arena == during.uordblks + during.fordblks);
    CHECK(narrow.hblkhd >= 64 << 20 && narrow.uordblks > 0);
    free(large);
    for (int i = 0; i < 1000; i++) free(small[i]);
    malloc_trim(0);
    struct mallinfo2 after = mallinfo2();
    CHECK(after.hblks == before.hblks && after.uordblks < during.uordblks);
}

static void trimming_gives_an_answer(void) {
    char *block = malloc(32 << 20);
    memset(block, 1, 32 << 20);
    free(block);
    errno = EDOM;
    int gave = malloc_trim(0);
    CHECK((gave == 0 || gave == 1) && errno == EDOM);
}

static void the_xml_is_whole(void) {
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    CHECK(malloc_info(1, stream) == EINVAL);
    CHECK(malloc_info(0, stream) == 0);
    fclose(stream);
    CHECK(!strncmp(text, "<malloc version=\"1\"", 19));
    CHECK(strstr(text, "<system type=\"current\" size=\""));
    CHECK(!strcmp(text + length - 10, "</malloc>\n"));
    free(text);
}

static void the_summary_goes_to_stderr(void) {
    int ends[2], saved = dup(2);
    char text[4096];
    CHECK(pipe(ends) == 0 && dup2(ends[1], 2) == 2);
    errno = EDOM;
    malloc_stats();
    CHECK(errno == EDOM);
    dup2(saved, 2), close(ends[1]);
    ssize_t length = read(ends[0], text, sizeof text - 1);
    CHECK(length > 0);
    text[length] = 0;
    CHECK(strstr(text, "live") && text[length - 1] == '\n');
}

int main(void) {
    static const char *const names[] = {
        "malloc_trim", "mallopt", "mallinfo", "mallinfo2", "malloc_info", "malloc_stats"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) CHECK(served_by_neap(names[i]));
    known_parameters_are_accepted();
    the_counts_follow_the_heap();
    trimming_gives_an_answer();
    the_xml_is_whole();
    the_summary_goes_to_stderr();
    return 0;
}
