// An image service: GET /FILE/WIDTH/FORMAT answers with the photograph FILE, resized. GET /idle
// collects V8's garbage, so that at rest every allocator holds the same data.
'use strict';
const http = require('node:http');
const path = require('node:path');
const sharp = require('sharp');

const work = process.env.CASE_WORK;
const photographs = path.join(process.env.CASE_ENV, 'photographs');
// sharp takes one thread an image under glibc and one a processor under jemalloc, by the name of
// the preloaded library. Here every allocator gets the same four.
sharp.concurrency(4);

const server = http.createServer(async (request, response) => {
    const [, file, width, format] = request.url.split('/');
    if (file === 'idle') {
        globalThis.gc();
        response.end();
        return;
    }
    try {
        const image = await sharp(path.join(photographs, file))
            .rotate()
            .resize(Number(width))
            .toFormat(format, { quality: 80 })
            .toBuffer();
        response.end(image);
    } catch (error) {
        response.writeHead(500);
        response.end(String(error));
    }
});
server.listen(path.join(work, 'socket'));
process.stdin.on('end', () => process.exit(0)).resume();
