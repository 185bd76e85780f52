#!/usr/bin/env python3
"""Several requests at once: all are computed in the steps of one batch. First each is read by a task of asyncio, as its tokens come; then
the same texts are taken as wholes, without asyncio.

    several.py [MODEL]
"""
import asyncio
import sys

import weft

PROMPTS = ["One day", "Once upon a time", "The little dog", "Lily and Tom"]


async def read(number: int, request: weft.Request) -> str:
    text = ''
    async for piece in request:
        print(f'{number}: {piece!r}')
        text += piece
    return text


async def read_all(engine: weft.Engine) -> 'list[str]':
    requests = [engine.submit(prompt, max_tokens=16) for prompt in PROMPTS]
    return await asyncio.gather(*(read(i, request) for i, request in enumerate(requests)))


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else weft.DEMO
    with weft.Model(path) as model, weft.Engine(model, n_seqs=len(PROMPTS)) as engine:
        for prompt, text in zip(PROMPTS, asyncio.run(read_all(engine))):
            print(f'{prompt}{text}')
        requests = [engine.submit(prompt, max_tokens=16) for prompt in PROMPTS]
        for prompt, request in zip(PROMPTS, requests):
            print(f'{prompt}{request.text()}')


if __name__ == '__main__':
    main()
