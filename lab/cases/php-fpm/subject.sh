# Four workers that are never replaced. USE_ZEND_ALLOC=0 turns PHP's own heap off: arrays and
# strings are then all behind malloc. No shared extension is loaded (-n): PHP opens them by
# RTLD_DEEPBIND, and their calls then go past a preloaded allocator.
cat >"$CASE_WORK/fpm.conf" <<CONF
[global]
pid = $CASE_WORK/pid
error_log = /dev/stderr
daemonize = no
[www]
listen = $CASE_WORK/socket
listen.backlog = 64
pm = static
pm.max_children = 4
pm.max_requests = 0
clear_env = no
php_admin_value[memory_limit] = 1G
php_admin_value[opcache.enable] = 0
CONF
# php-fpm refuses root unless it is asked twice.
root=
[ "$(id -u)" != 0 ] || { root=-R; printf 'user = root\ngroup = root\n' >>"$CASE_WORK/fpm.conf"; }
fpm=$(command -v php-fpm || ls /usr/sbin/php-fpm[0-9]* | head -n 1)
export USE_ZEND_ALLOC=${USE_ZEND_ALLOC-0}
exec "$fpm" -F $root -n -y "$CASE_WORK/fpm.conf"
