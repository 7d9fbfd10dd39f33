struct record_N { unsigned long key; double weight; char name[N % 60 + 4]; };

static unsigned long mix_N(struct record_N *records, int count) {
  unsigned long sum = 0;
  for (int i = 0; i < count; i++) {
    switch ((records[i].key + i) % 5) {
    case 0: sum += records[i].key * (N + 3); break;
    case 1: sum ^= (unsigned long)(records[i].weight * 17.5) + N; break;
    case 2: sum += strlen(records[i].name); break;
    case 3: sum = sum << 3 | sum >> 61; break;
    default: sum -= i;
    }
  }
  return sum;
}

unsigned long work_N(unsigned long seed) {
  struct record_N records[24];
  for (int i = 0; i < 24; i++) {
    records[i].key = seed * (i + N) + 11;
    records[i].weight = (double)(seed % 1000) / (i + 1);
    snprintf(records[i].name, sizeof records[i].name, "%d", i * N % 900);
  }
  return mix_N(records, 24);
}
