// 300 people edit 100 documents: one writes, two read along and load the page now and then. When
// all is written they leave, and the server stores the documents.
'use strict';
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const zlib = require('node:zlib');
const WebSocket = require('ws');
const Y = require('yjs');

const DOCUMENTS = 100;
const EDITS = 120;
const work = process.env.CASE_WORK;
const socketPath = path.join(work, 'socket');
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

let state = 0x1337babe;
function random(below) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
}

function words(count) {
    const list = [];
    for (let i = 0; i < count; i++) list.push(random(50_000).toString(36));
    return list.join(' ') + '\n';
}

function get(url) {
    return new Promise((resolve, reject) => {
        const request = http.get({ socketPath, path: url }, (response) => {
            const parts = [];
            response.on('data', (part) => parts.push(part));
            response.on('end', () => resolve(Buffer.concat(parts)));
        });
        request.on('error', reject);
    });
}

// A person at a document: a socket, and the document as this person sees it.
function enter(name, id) {
    const doc = new Y.Doc();
    doc.clientID = id;
    const socket = new WebSocket(`ws+unix://${socketPath}:/doc/${name}`);
    socket.on('message', (change) => Y.applyUpdate(doc, change, 'server'));
    doc.on('update', (change, origin) => {
        if (origin !== 'server') socket.send(change);
    });
    return new Promise((resolve, reject) => {
        socket.on('error', reject);
        socket.on('open', () => resolve({ doc, socket, text: doc.getText('body') }));
    });
}

function edit(text) {
    const kind = random(10);
    const at = random(text.length + 1);
    if (kind === 0) text.insert(at, words(2000 + random(6000)));
    else if (kind < 4 && text.length > 2000) text.delete(random(text.length - 1000), random(1000));
    else text.insert(at, words(5 + random(120)));
}

async function main() {
    while (!fs.existsSync(socketPath)) await sleep(20);
    console.log('work');
    const people = [];
    for (let d = 0; d < DOCUMENTS; d++) {
        for (let p = 0; p < 3; p++) people.push(await enter(`document-${d}`, 1 + 3 * d + p));
    }
    for (let e = 0; e < EDITS; e++) {
        for (let d = 0; d < DOCUMENTS; d++) edit(people[3 * d].text);
        // Until every reader has what was written, and has loaded every tenth page.
        for (let d = 0; d < DOCUMENTS; d++) {
            const [writer, ...readers] = people.slice(3 * d, 3 * d + 3);
            for (const reader of readers) {
                while (reader.text.length !== writer.text.length) await sleep(1);
            }
            if ((d + e) % 10 !== 0) continue;
            await Promise.all(readers.map(() => get(`/page/document-${d}`)));
        }
    }
    const digest = crypto.createHash('sha256');
    for (let d = 0; d < DOCUMENTS; d++) digest.update(people[3 * d].text.toString());
    for (const person of people) person.socket.close();
    while ((await get('/idle')).toString() !== '0') await sleep(100);
    for (let d = 0; d < DOCUMENTS; d++) {
        const stored = new Y.Doc();
        Y.applyUpdate(stored, zlib.gunzipSync(fs.readFileSync(path.join(work, `document-${d}`))));
        digest.update(stored.getText('body').toString());
    }
    console.log(`check ${digest.digest('hex').slice(0, 16)}`);
    console.log('rest');
}

process.stdin.on('end', () => process.exit(0)).resume();
main().catch((error) => {
    console.error(error);
    process.exit(1);
});
