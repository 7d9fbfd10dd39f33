// The server of a wiki. A WebSocket on /doc/NAME sends the document's state and then every change;
// a change that it receives is applied and goes to the others. When the last socket closes, the
// document is stored, compressed, and leaves memory. GET /page/NAME renders a document as HTML.
// GET /idle collects V8's garbage, so that at rest every allocator holds the same data.
'use strict';
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const zlib = require('node:zlib');
const { WebSocketServer } = require('ws');
const Y = require('yjs');

const work = process.env.CASE_WORK;
const open = new Map();

function document(name) {
    let entry = open.get(name);
    if (!entry) {
        entry = { doc: new Y.Doc(), sockets: new Set(), stored: 0 };
        open.set(name, entry);
    }
    return entry;
}

// Writes the document to its file; the revision is compressed off the main thread.
function store(name, entry, done) {
    const state = Y.encodeStateAsUpdate(entry.doc);
    zlib.gzip(state, { level: 1 }, (error, packed) => {
        if (error) throw error;
        fs.writeFile(path.join(work, name), packed, done);
    });
}

function escape(text) {
    return text.replace(/[&<>]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;' })[c]);
}

const server = http.createServer((request, response) => {
    const [, verb, name] = request.url.split('/');
    if (verb === 'idle') {
        globalThis.gc();
        response.end(String(open.size));
        return;
    }
    const lines = document(name).doc.getText('body').toString().split('\n');
    const body = lines.map((line, i) => `<p id="line-${i}">${escape(line)}</p>`).join('\n');
    response.setHeader('content-encoding', 'gzip');
    zlib.gzip(`<!doctype html><title>${name}</title>${body}`, { level: 1 }, (error, packed) => {
        if (error) throw error;
        response.end(packed);
    });
});

const sockets = new WebSocketServer({ server, perMessageDeflate: { threshold: 512 } });
sockets.on('connection', (socket, request) => {
    const name = request.url.split('/')[2];
    const entry = document(name);
    entry.sockets.add(socket);
    socket.send(Y.encodeStateAsUpdate(entry.doc));
    socket.on('message', (change) => {
        Y.applyUpdate(entry.doc, change);
        for (const other of entry.sockets) if (other !== socket) other.send(change);
        entry.stored += change.length;
        if (entry.stored > 200_000) {
            entry.stored = 0;
            store(name, entry, () => {});
        }
    });
    socket.on('close', () => {
        entry.sockets.delete(socket);
        if (entry.sockets.size > 0) return;
        store(name, entry, () => {
            entry.doc.destroy();
            open.delete(name);
        });
    });
});
server.listen(path.join(work, 'socket'));
process.stdin.on('end', () => process.exit(0)).resume();
