"""Write the video of the case: 1080p, 90 frames, MPEG-4."""

import sys

import av
import numpy as np

WIDTH, HEIGHT, FRAMES = 1920, 1080, 90

rng = np.random.default_rng(459)
scene = rng.integers(0, 255, (HEIGHT // 8, WIDTH // 8, 3), dtype=np.uint8)
scene = np.ascontiguousarray(scene.repeat(8, axis=0).repeat(8, axis=1))
with av.open(sys.argv[1], "w") as file:
    stream = file.add_stream("mpeg4", rate=25)
    stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
    stream.bit_rate = 6_000_000
    for number in range(FRAMES):
        picture = np.roll(scene, number * 8, axis=1)
        picture[400:600, number * 12 : number * 12 + 200] = (0, 0, 255)  # what moves
        for packet in stream.encode(av.VideoFrame.from_ndarray(picture, format="bgr24")):
            file.mux(packet)
    for packet in stream.encode():
        file.mux(packet)
