// Seals records for a Python service: a packet is a record and its checksum.
//
// With PLANTED=1 in the environment, the block of a packet has no room for the checksum.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint32_t checksum(const unsigned char *record, size_t length) {
    uint32_t sum = 2166136261u;
    while (length--)
        sum = (sum ^ *record++) * 16777619u;
    return sum;
}

static size_t room_for(size_t length) {
    const char *planted = getenv("PLANTED");
    return planted && planted[0] == '1' ? length : length + sizeof(uint32_t);
}

unsigned char *seal(const unsigned char *record, size_t length) {
    unsigned char *packet = malloc(room_for(length));
    uint32_t sum = checksum(record, length);
    memcpy(packet, record, length);
    memcpy(packet + length, &sum, sizeof sum);
    return packet;
}

void discard(unsigned char *packet) { free(packet); }
