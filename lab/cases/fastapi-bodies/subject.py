"""A gateway for chats: parse, check, rewrite for the service behind it, answer."""

import base64
import hashlib
import json
import sys
import threading

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
# What the gateway remembers of each conversation; the oldest goes first.
REMEMBERED = 40
conversations = {}
turn = threading.Lock()


class Part(BaseModel):
    type: str
    text: str | None = None
    image: str | None = None


class Message(BaseModel):
    role: str
    parts: list[Part]


class Chat(BaseModel):
    conversation: str
    messages: list[Message]


def rewrite(chat):
    """The same chat in the words of the service behind; images are decoded to be measured."""
    contents = []
    size = 0
    for message in chat.messages:
        parts = []
        for part in message.parts:
            if part.image is not None:
                raw = base64.b64decode(part.image)
                size += len(raw)
                parts.append({"inline": {"data": base64.b64encode(raw).decode()}})
            else:
                parts.append({"text": part.text, "tokens": part.text.count(" ")})
        contents.append({"role": message.role, "parts": parts})
    return contents, size


@app.post("/chat")
def chat(body: Chat):  # not async: FastAPI runs it on its pool of threads
    contents, size = rewrite(body)
    sent = json.dumps({"contents": contents})
    answer = hashlib.sha256(sent.encode()).hexdigest()
    summary = [message.parts[0].text[:200] for message in body.messages[-20:]]
    with turn:
        conversations[body.conversation] = {"last": answer, "images": size, "summary": summary}
        while len(conversations) > REMEMBERED:
            del conversations[next(iter(conversations))]
    return {"answer": answer, "echo": contents[-1]}


@app.get("/ready")
async def ready():
    return {}


try:
    uvicorn.run(app, uds=sys.argv[1], log_level="error", http="h11", loop="asyncio")
except KeyboardInterrupt:
    pass
