/* Wrong steps in C++: a block given back by another form than the one that it came from. Written
   for this project, after the classes of errors that mimalloc-bench's security programs cover. */
#include "situation.h"
#include <string>

namespace {

struct Wide {
    long words[9];
};

/* Deletes an object of one byte as one of 72. */
void as_a_larger_object() {
    char *object = new char;
    /* Its neighbours must not be handed out with it. */
    for (int i = 0; i < 16; i++) note_in_use(new char, 1);
    step();
    delete reinterpret_cast<Wide *>(object);
    look_for_two_owners(sizeof(Wide));
}

void object_as_array() {
    char *object = new char;
    step();
    delete[] object;
    look_for_two_owners(1);
}

void array_as_object() {
    char *array = new char[4096];
    step();
    delete array;
    look_for_two_owners(4096);
}

/* With destructors to run, an array has its length in front of it. */

void text_as_array() {
    std::string *text = new std::string;
    step();
    delete[] text;
    look_for_two_owners(sizeof(std::string));
}

void texts_as_one() {
    std::string *texts = new std::string[4096];
    step();
    delete texts;
    look_for_two_owners(4096 * sizeof(std::string));
}

const struct {
    const char *name;
    void (*carry_out)();
} kinds[] = {
    {"as-a-larger-object", as_a_larger_object},
    {"object-as-array", object_as_array},
    {"array-as-object", array_as_object},
    {"text-as-array", text_as_array},
    {"texts-as-one", texts_as_one},
};

} // namespace

int main(int count, char **arguments) {
    begin();
    if (count != 3) return NOT_SET_UP;
    for (auto &kind : kinds)
        if (!strcmp(kind.name, arguments[1])) kind.carry_out();
    return NOT_SET_UP;
}
