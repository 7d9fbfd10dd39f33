#!/usr/bin/env bash
# The naive model and a real program under each vm.overcommit_memory: ci/overcommit.sh LIBRARY
set -euo pipefail
cd "$(dirname "$0")/.."

library=$1
setting=/proc/sys/vm/overcommit_memory
if [ ! -w "$setting" ]; then
    echo "skipped: $setting cannot be written here (run as root)"
    exit 0
fi
before=$(cat "$setting")
trap 'echo "$before" > "$setting"' EXIT

cargo test -q -p neap-heap --test model --no-run
program='
import json, os, threading
assert os.environ["LD_PRELOAD"] in open("/proc/self/maps").read()
text = json.dumps([{"number": i, "text": str(i) * 20} for i in range(100000)])
assert len(json.loads(text)) == 100000
threads = [threading.Thread(target=lambda: [bytearray(100000) for _ in range(1000)]) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
child = os.fork()
if child == 0:
    blocks = [bytes(1000) for _ in range(10000)]
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
'
for mode in 0 1 2; do
    echo "$mode" > "$setting"
    LD_PRELOAD=$library timeout 100 /usr/bin/python3 -c "$program"
    MODEL_OPERATIONS=200000 cargo test -q -p neap-heap --test model
    echo "overcommit_memory $mode: ok"
done
