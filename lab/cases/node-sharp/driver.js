// Asks the server for 192 smaller copies of the photographs, eight at a time. Every run asks for the
// same images in the same order.
'use strict';
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');

const REQUESTS = 192;
const AT_ONCE = 8;
const work = process.env.CASE_WORK;
const socketPath = path.join(work, 'socket');
const agent = new http.Agent({ keepAlive: true, maxSockets: AT_ONCE });

// xorshift32.
let state = 0x2545f491;
function random(below) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
}

function get(url) {
    return new Promise((resolve, reject) => {
        const request = http.get({ socketPath, path: url, agent }, (response) => {
            const parts = [];
            response.on('data', (part) => parts.push(part));
            response.on('end', () => {
                const body = Buffer.concat(parts);
                if (response.statusCode === 200) resolve(body);
                else reject(new Error(`${url}: ${body}`));
            });
        });
        request.on('error', reject);
    });
}

async function main() {
    const files = fs.readdirSync(path.join(process.env.CASE_ENV, 'photographs')).sort();
    while (!fs.existsSync(socketPath)) await new Promise((done) => setTimeout(done, 20));
    const wanted = [];
    for (let i = 0; i < REQUESTS; i++) {
        const width = [200, 640, 1280, 1920][random(4)] + random(64);
        wanted.push(`/${files[random(files.length)]}/${width}/${['jpeg', 'webp'][random(2)]}`);
    }
    console.log('work');
    const digests = new Array(REQUESTS);
    for (let start = 0; start < REQUESTS; start += AT_ONCE) {
        const batch = wanted.slice(start, start + AT_ONCE).map(async (url, i) => {
            const body = await get(url);
            digests[start + i] = crypto.createHash('sha256').update(body).digest('hex');
        });
        await Promise.all(batch);
    }
    await get('/idle');
    const check = crypto.createHash('sha256').update(digests.join()).digest('hex').slice(0, 16);
    console.log(`check ${check}`);
    console.log('rest');
}

process.stdin.on('end', () => process.exit(0)).resume();
main().catch((error) => {
    console.error(error);
    process.exit(1);
});
