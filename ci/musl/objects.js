// What Node does to a heap: buffers of all sizes, streams, compression and hashes in its pool of
// threads, workers, a server and its clients. Prints sums.
const { Worker, isMainThread, parentPort } = require('worker_threads');
const zlib = require('zlib');
const crypto = require('crypto');
const http = require('http');

// The same numbers in each run.
let state = 1;
const random = (below) => (state = (state * 48271) % 2147483647) % below;

function buffers() {
    const kept = [];
    let sum = 0;
    for (let i = 0; i < 60000; i++) {
        kept[random(3000)] = Buffer.alloc(1 + random(i % 100 ? 3000 : 300000), i & 255);
        if (i % 3 == 0) kept[random(3000)] = undefined;
    }
    for (const each of kept) sum += each ? each.length + each[0] : 0;
    return sum;
}

function compress() {
    const text = Buffer.from(Array.from({ length: 100000 }, (_, i) => `line ${i % 977}\n`).join(''));
    const once = (i) => new Promise((done) => zlib.gzip(text.subarray(i), { level: 1 + i }, (_, packed) =>
        zlib.gunzip(packed, (_, plain) => done(crypto.createHash('sha256').update(plain).digest('hex').slice(0, 8)))));
    return Promise.all(Array.from({ length: 8 }, (_, i) => once(i)));
}

function serve() {
    return new Promise((done) => {
        const server = http.createServer((request, response) => {
            request.resume().on('end', () => response.end('x'.repeat(request.url.length * 100)));
        });
        server.listen(0, '127.0.0.1', async () => {
            let sum = 0;
            for (let i = 0; i < 20; i++) {
                sum += (await Promise.all(Array.from({ length: 20 }, (_, k) => ask(server.address().port, k)))).reduce((a, b) => a + b);
            }
            server.close();
            server.closeAllConnections();
            done(sum);
        });
    });
}

function ask(port, number) {
    return new Promise((done) => {
        const request = http.request({ port, host: '127.0.0.1', method: 'POST', path: '/' + 'p'.repeat(number) }, (response) => {
            let bytes = 0;
            response.on('data', (part) => { bytes += part.length; }).on('end', () => done(bytes));
        });
        request.end(Buffer.alloc(10000));
    });
}

const work = () => new Promise((done) => new Worker(__filename).once('message', done));

if (!isMainThread) parentPort.postMessage(buffers());
else (async () => {
    console.log(buffers());
    console.log((await compress()).join());
    console.log(await serve());
    console.log((await Promise.all([work(), work(), work(), work()])).join());
})();
