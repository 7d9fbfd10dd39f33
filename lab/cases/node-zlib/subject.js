// Bursts of 3,000 messages that are compressed at the same time, on the pool's threads; a history
// of 1,500 compressed messages stays. A stream takes 256 KiB until its callback has run, and all
// wait for the one main thread. V8's garbage is collected between the bursts: it would otherwise
// decide the peak.
'use strict';
const crypto = require('node:crypto');
const zlib = require('node:zlib');
const { promisify } = require('node:util');

const deflate = promisify(zlib.deflate);
const BURSTS = 12;
const AT_ONCE = 3000;
const HISTORY = 1500;

let state = 0x5eed1234;
function random(below) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
}

function message(id) {
    const fields = { id, room: random(500), tags: [] };
    for (let n = 10 + random(150); n > 0; n--) fields.tags.push(random(100_000).toString(36));
    return Buffer.from(JSON.stringify(fields));
}

async function main() {
    const digest = crypto.createHash('sha256');
    const history = [];
    console.log('work');
    for (let burst = 0; burst < BURSTS; burst++) {
        const messages = Array.from({ length: AT_ONCE }, (_, id) => message(id));
        const packed = await Promise.all(messages.map((m) => deflate(m, { level: 6 })));
        for (let i = 0; i < AT_ONCE; i++) {
            digest.update(packed[i]);
            if (i % 4 === 0) history.push(packed[i]);
        }
        history.splice(0, history.length - HISTORY);
        await new Promise((done) => setTimeout(done, 200));
        globalThis.gc();
    }
    for (const entry of history) digest.update(entry);
    console.log(`check ${digest.digest('hex').slice(0, 16)}`);
    console.log('rest');
    process.stdin.on('end', () => process.exit(history.length > 0 ? 0 : 1)).resume();
}

main();
