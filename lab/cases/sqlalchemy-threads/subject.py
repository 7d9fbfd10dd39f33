"""A server's refresh of many records by 64 threads: query, unpack, compare, write back."""

import base64
import hashlib
import json
import pickle
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import JSON, ForeignKey, LargeBinary, String, create_engine, event, select
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    relationship,
    selectinload,
)

CLUSTERS = 400
NODES = 12
THREADS = 64
REFRESHES = 5


class Base(DeclarativeBase):
    pass


class Cluster(Base):
    __tablename__ = "clusters"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(80))
    handle: Mapped[bytes] = mapped_column(LargeBinary)  # a pickled description, as SkyPilot has
    nodes: Mapped[list["Node"]] = relationship(order_by="Node.id")


class Node(Base):
    __tablename__ = "nodes"
    id: Mapped[int] = mapped_column(primary_key=True)
    cluster_id: Mapped[int] = mapped_column(ForeignKey("clusters.id"), index=True)
    labels: Mapped[dict] = mapped_column(JSON)


def description(number):
    """What a cluster was started with: nested, 20 to 150 KB when unpacked."""
    tasks = {}
    for n in range(10 + number * 37 % 60):
        variables = {f"KEY_{k}": f"value-{number}-{n}-{k}" for k in range(20)}
        tasks[f"task-{n}"] = {"env": variables, "run": "x" * (n * 13)}
    return tasks


def fill(engine):
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        for number in range(CLUSTERS):
            nodes = [
                Node(labels={f"label-{k}": f"{number}-{n}-{k}" for k in range(25)})
                for n in range(NODES)
            ]
            handle = pickle.dumps(description(number))
            name = f"cluster-{number}"
            session.add(Cluster(id=number + 1, name=name, handle=handle, nodes=nodes))
        session.commit()


def cloud(number, turn):
    """Stand-in for what the cloud's command answers: text of 100 to 600 KB."""
    pods = [
        {"name": f"pod-{number}-{n}", "phase": "Running", "turn": turn, "spec": "s" * 900}
        for n in range(100 + (number * 31 + turn * 17) % 500)
    ]
    return json.dumps({"items": pods})


class Server:
    def __init__(self, engine):
        self.engine = engine
        self.write = threading.Lock()
        self.states = {}  # what the server keeps of each cluster

    def refresh(self, number, turn):
        with Session(self.engine) as session:
            query = select(Cluster).where(Cluster.id == number + 1)
            cluster = session.scalars(query.options(selectinload(Cluster.nodes))).one()
            handle = pickle.loads(cluster.handle)
            answer = json.loads(cloud(number, turn))
            running = sum(pod["phase"] == "Running" for pod in answer["items"])
            for node in cluster.nodes:
                node.labels = {**node.labels, "running": running, "turn": turn}
            packed = zlib.compress(json.dumps(handle).encode(), 1)
            state = hashlib.sha256(repr(sorted(cluster.nodes[-1].labels.items())).encode())
            state.update(packed)
            with self.write:
                session.commit()
        self.states[number] = (state.hexdigest(), base64.b64encode(packed[:512]))


def main():
    engine = create_engine(
        f"sqlite:///{sys.argv[1]}", pool_size=THREADS, connect_args={"check_same_thread": False}
    )

    @event.listens_for(engine, "connect")
    def quick(connection, _):
        connection.execute("pragma journal_mode=wal")
        connection.execute("pragma synchronous=off")
        connection.execute("pragma busy_timeout=60000")

    fill(engine)
    server = Server(engine)
    pool = ThreadPoolExecutor(THREADS)
    print("work", flush=True)
    for turn in range(REFRESHES):
        list(pool.map(lambda number: server.refresh(number, turn), range(CLUSTERS)))
    found = sorted(server.states.items())
    print("check", hashlib.sha256(repr(found).encode()).hexdigest()[:16])
    print("rest", flush=True)
    sys.stdin.read()
    pool.shutdown()
    engine.dispose()


main()
