// Draws 16 photographs of 3 to 22 megapixels into the folder that the argument names.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const sharp = require('sharp');

const folder = process.argv[2];

// xorshift32.
let state = 0x2545f491;
function random(below) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
}

// A photograph: blurred noise over a gradient, so that it compresses as a photograph does.
async function draw(file, width, height, format) {
    const small = { width: width >> 4, height: height >> 4, channels: 3 };
    const pixels = Buffer.alloc(small.width * small.height * 3);
    for (let i = 0; i < pixels.length; i++) pixels[i] = ((i / 3) % 256 + random(96)) & 255;
    await sharp(pixels, { raw: small })
        .resize(width, height, { fit: 'fill', kernel: 'cubic' })
        .toFormat(format, { quality: 90, compressionLevel: 1 })
        .toFile(path.join(folder, file));
}

async function main() {
    fs.mkdirSync(folder, { recursive: true });
    for (let i = 0; i < 16; i++) {
        const width = 2112 + 240 * i;
        const format = i % 4 === 3 ? 'png' : 'jpeg';
        await draw(`photo-${i}.${format}`, width, (width / 3) * 2, format);
    }
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
