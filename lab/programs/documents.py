"""Builds, dumps and loads a document of 40,000 records, and reports like a worker.

Arguments: how many times, and the library that must be mapped.
"""

import json, resource, sys, time
rounds, library = int(sys.argv[1]), sys.argv[2]
start = time.perf_counter_ns()
for _ in range(rounds):
    document = [
        {"id": i, "name": "name %d" % i, "tags": ["t%d" % (i % 7), "u%d" % (i % 11)],
         "at": {"x": i * 0.5, "y": -i}, "note": "n" * (i % 200)}
        for i in range(40000)
    ]
    text = json.dumps(document)
    again = json.loads(text)
    assert again == document, "json came back changed"
elapsed = time.perf_counter_ns() - start
usage = resource.getrusage(resource.RUSAGE_SELF)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
assert any(line.rstrip("\n").endswith(library) for line in open("/proc/self/maps")), "not mapped"
print("ns_per_op=%d" % (elapsed / rounds))
print("peak_rss_kib=" + status["VmHWM"].split()[0])
print("minor_faults=%d\nmajor_faults=%d" % (usage.ru_minflt, usage.ru_majflt))
print("heap=" + library)
