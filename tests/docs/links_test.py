"""Links of the documents: files and headings that they name are there. Addresses of the network are not fetched."""

import re
import unittest

import documents
from documents import ROOT

PATH = re.compile(r"(?<![\w/.~$-])(?:src|tests|docs|tools|bench|examples|configs|cmake)/[\w./-]*\w/?")


class LinksTest(unittest.TestCase):
    def test_links(self):
        found = 0
        for document in documents.documents():
            for line, target in documents.links(document.read_text()):
                place = f"{document.relative_to(ROOT)}:{line}: {target}"
                if re.match(r"[a-z]+:", target):
                    self.assertRegex(target, r"^https://[\w.-]+(/\S*)?$", place)
                    continue
                found += 1
                name, _, anchor = target.partition("#")
                path = (document.parent / name).resolve() if name else document
                self.assertTrue(path.exists(), f"{place}: no such file")
                self.assertIn(ROOT, [path, *path.parents], f"{place}: outside of the tree")
                if anchor:
                    self.assertIn(anchor, documents.headings(path.read_text()), f"{place}: no such heading")
        self.assertGreater(found, 20)

    # A file that prose or a table names in code marks is there too, by its path or as a document beside this one.
    def test_named_files(self):
        found = 0
        for document in documents.documents():
            if document.name == "CHANGELOG.md":
                continue
            prose = documents.parts(document.read_text())[1]
            for name in PATH.finditer(prose):
                place = f"{document.relative_to(ROOT)}:{prose[:name.start()].count(chr(10)) + 1}: {name[0]}"
                if re.search(r"[*{<N]", prose[name.end() : name.end() + 1]):
                    continue  # a pattern
                found += 1
                here = [ROOT / name[0], document.parent / name[0]]
                stem = [p for p in (ROOT / name[0]).parent.glob((ROOT / name[0]).name + ".*")]
                self.assertTrue(any(p.exists() for p in here) or stem, f"{place}: no such file")
        self.assertGreater(found, 50)


class DocumentsTest(unittest.TestCase):
    def test_parts(self):
        blocks, prose = documents.parts("# A `b` c\n\n    megatoken plan a.yaml  # why\n    more\n\n```sh\nx\n```\ntext\n")
        self.assertEqual([(b.language, b.line, b.lines) for b in blocks], [("", 3, ["megatoken plan a.yaml  # why", "more"]), ("sh", 7, ["x"])])
        self.assertIn("text", prose)
        self.assertNotIn("more", prose)

    def test_anchors(self):
        self.assertEqual(documents.headings("# `a_b`: C, d!\n## x y\n## x y\n"), {"a_b-c-d", "x-y", "x-y-1"})

    def test_clean(self):
        self.assertEqual(documents.clean("$ megatoken plan a.yaml [--rank 3]   # why"), "megatoken plan a.yaml --rank 3")


if __name__ == "__main__":
    unittest.main()
