"""Makes rows of at least so many tokens from books: a folder of .txt files, or JSON lines such as PG-19's. Books are
shuffled, whole books are held out for evaluation, the others are laid one behind the other and cut at the ends of
paragraphs; what is left of a book begins the next row, so little is lost when training cuts a row to max_length.

    python3 make_rows.py --input books/ --output rows/ --tokenizer Qwen3-0.6B/ --tokens 262144
    python3 make_rows.py --input pg19.jsonl --output rows/ --tokenizer Qwen3-8B/ --tokens 1048576 --rows 16 --held_out 4

Writes OUTPUT/train.jsonl and OUTPUT/test.jsonl, a {"text": ...} a line. Tokens are counted by `megatoken tokenize`.
Needs nothing but Python 3 and the program.
"""

import argparse
import functools
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

MARGIN = 1.002  # of a row over the tokens asked for: its tokens are guessed by its characters before they are counted
CHARACTERS = 8  # more text is taken by so many characters a token that is missing


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=pathlib.Path, required=True, help="a folder, searched through, or one file")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the folder for train.jsonl and test.jsonl")
    parser.add_argument("--tokenizer", required=True, help="a folder with tokenizer.json: the model's")
    parser.add_argument("--tokens", type=int, required=True, help="a row has at least so many: your max_length")
    parser.add_argument("--rows", type=int, help="training rows to make; all that the books yield without it")
    parser.add_argument("--held_out", type=int, default=0, help="evaluation rows to make first, from books of their own")
    parser.add_argument("--field", default="text", help="where a JSON line has its text")
    parser.add_argument("--separator", default="\n\n", help="between two books; an end token's text, for instance")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the books")
    parser.add_argument("--megatoken", default="megatoken", help="the program")
    return parser.parse_args()


def books(path, field):
    """(where, function that reads the text) of every book: a library need not fit into memory."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in (".txt", ".jsonl"))
    for file in files:
        if file.suffix != ".jsonl":
            yield str(file), functools.partial(file.read_text, encoding="utf-8", errors="replace")
            continue
        begin = 0
        with open(file, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{file}:{number}", functools.partial(json_text, file, begin, number, field)
                begin += len(line)


def json_text(file, begin, number, field):
    with open(file, "rb") as lines:
        lines.seek(begin)
        try:
            row = json.loads(lines.readline())
        except ValueError as error:
            sys.exit(f"error: {file}:{number}: {error}")
    if not isinstance(row, dict) or not isinstance(row.get(field), str):
        sys.exit(f"error: {file}:{number}: no text under {field} (--field names another)")
    return row[field]


class Rows:
    """Joins books to rows. `text` is what has been read and not yet given out, `tokens` about how many tokens that is."""

    def __init__(self, options, order):
        self.options, self.order, self.text, self.tokens = options, order, "", 0

    def count(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            command = [self.options.megatoken, "tokenize", "--tokenizer", self.options.tokenizer, "--input", file.name]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(done.returncode)  # the program has said why
        return int(re.search(r"(\d+) tokens from", done.stdout)[1])

    def next(self):
        """(text, tokens) of the next row, or None when the books are used up."""
        wanted = self.options.tokens
        while True:
            while self.tokens < wanted * MARGIN:
                if not self.order:
                    return None
                book = self.order.pop()[1]().strip()
                self.text += (self.options.separator if self.text else "") + book
                self.tokens += self.count(book)
            end, counted = int(len(self.text) * wanted * MARGIN / self.tokens), 0
            while end < len(self.text) and counted < wanted:
                paragraph = self.text.find("\n\n", end)
                end = len(self.text) if paragraph < 0 else paragraph
                counted = self.count(self.text[:end])
                if counted < wanted:
                    end += (wanted - counted) * CHARACTERS
            if counted >= wanted:
                row, self.text = self.text[:end], self.text[end:].lstrip("\n")
                self.tokens = max(0, self.tokens - counted)
                return row, counted
            self.tokens = counted  # fewer than the books had alone: more books, or the end


def write(rows, path, most):
    written = tokens = 0
    with open(path, "w", encoding="utf-8") as file:
        while most is None or written < most:
            row = rows.next()
            if row is None:
                break
            file.write(json.dumps({"text": row[0]}, ensure_ascii=False) + "\n")
            written, tokens = written + 1, tokens + row[1]
    print(f"{path}: {written} rows, {tokens} tokens")
    return written


def main():
    options = arguments()
    order = list(books(options.input, options.field))
    if not order:
        sys.exit(f"error: {options.input}: no .txt or .jsonl file")
    print(f"{options.input}: {len(order)} books")
    random.Random(options.seed).shuffle(order)
    options.output.mkdir(parents=True, exist_ok=True)
    if options.held_out:
        held_out = Rows(options, order)
        if write(held_out, options.output / "test.jsonl", options.held_out) < options.held_out:
            sys.exit(f"error: the books are too few for {options.held_out} rows of {options.tokens} tokens to hold out")
    rows = Rows(options, order)
    if write(rows, options.output / "train.jsonl", options.rows) == 0:
        sys.exit(f"error: the books have fewer than {options.tokens} tokens; nothing to train on")
    if rows.tokens:
        print(f"left over: about {rows.tokens} tokens")


if __name__ == "__main__":
    main()
