"""gunicorn's settings: load first, freeze the collector, then fork."""

import gc

workers = 6
worker_class = "sync"
preload_app = True
worker_tmp_dir = "/dev/shm"
timeout = 120
loglevel = "error"


def when_ready(server):
    gc.collect()
    gc.freeze()
