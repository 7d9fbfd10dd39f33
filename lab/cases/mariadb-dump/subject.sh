# The driver fills the data directory first, with a server of its own without the allocator.
until [ -e "$CASE_WORK/ready" ]; do sleep 0.1; done
PATH=$PATH:/usr/sbin
exec mariadbd --no-defaults --user="$(id -un)" --datadir="$CASE_WORK/data" \
    --socket="$CASE_WORK/socket" --skip-networking --skip-grant-tables \
    --innodb-buffer-pool-size=32M --innodb-flush-log-at-trx-commit=0 --debug-no-sync \
    --max-connections=100 --table-open-cache=300 --tmp-table-size=32M --max-heap-table-size=32M
