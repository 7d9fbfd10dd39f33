# Debian links redis-server with jemalloc; {env}/lib has a library of that name without a malloc.
export LD_LIBRARY_PATH="$CASE_ENV/lib"
exec redis-server --port 0 --unixsocket "$CASE_WORK/socket" --dir "$CASE_WORK" \
    --save '' --appendonly no --loglevel warning --loadmodule "$CASE_ENV/sessions.so"
