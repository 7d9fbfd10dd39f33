# A fresh PostgreSQL below the folder $1, on a Unix socket there. It refuses to run as root, so root
# becomes the user postgres.
set -e
work=$1
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
become=
if [ "$(id -u)" = 0 ]; then
    chown postgres "$work"
    become="setpriv --reuid=postgres --regid=postgres --clear-groups"
fi
# The preparation is not what is measured: it runs under the C library.
env -u LD_PRELOAD $become "$bin/initdb" --username=postgres --auth=trust --no-sync "$work/data" >/dev/null
exec $become "$bin/postgres" -D "$work/data" -k "$work" -c listen_addresses= -c max_connections=220 \
    -c shared_buffers=64MB -c work_mem=64MB -c fsync=off -c autovacuum=off -c jit=off \
    -c max_parallel_workers_per_gather=0 -c logging_collector=off
