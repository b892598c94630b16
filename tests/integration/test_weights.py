"""acc merge-weights and acc estimate-memory, as a user types them."""
import glob, json, os, signal, struct, subprocess, tempfile, time, unittest, zlib

from harness import BIN, PATIENCE, SANITIZED, is_root, main

ACC = os.path.join(BIN, "acc")
MIB = 1 << 20


def acc(*words, **options):
    return subprocess.run([ACC, *words], capture_output=True, text=True, timeout=60 * PATIENCE, check=False, **options)


def safetensors(tensors):
    """Header and data of a file: {name: (dtype, shape, bytes)}, in this order."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def put(path, data):
    with open(path, "wb") as file:
        file.write(data)


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def record(name, data):
    sums = "".join(f"{zlib.crc32(data[at:at + MIB]):08x}" for at in range(0, len(data), MIB))
    return {"name": name, "bytes": len(data), "crc32": sums}


def checkpoint(folder, parts):
    """A checkpoint as save_state() writes it: {part: {name: (dtype, shape, bytes)}}."""
    os.makedirs(folder)
    files, tensors = [], []
    for part, held in parts.items():
        data = safetensors(held)
        put(os.path.join(folder, f"{part}.safetensors"), data)
        files.append(record(f"{part}.safetensors", data))
        for name, (dtype, shape, _) in held.items():
            tensors.append({"name": name, "part": part, "dtype": dtype, "shape": shape, "sharded": False,
                            "pieces": [{"file": f"{part}.safetensors", "rows": shape[0] if shape else 1}]})
    body = {"format": "acc-checkpoint", "version": 1, "number": 7, "ranks": 1, "block_bytes": MIB, "files": files, "tensors": tensors}
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    put(os.path.join(folder, "manifest.json"), json.dumps({"crc32": f"{zlib.crc32(text.encode()):08x}", "manifest": body}).encode())


SMALL = {"model": {"a.weight": ("F32", [2, 3], bytes(range(24))), "b.weight": ("BF16", [4], bytes(range(8)))},
         "buffers": {"b.count": ("I64", [], bytes(range(8)))}, "optimizer": {"moment/a.weight": ("F32", [6], bytes(24))}}


class InFolder(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="acc-weights-")
        self.addCleanup(self.temporary.cleanup)
        self.folder = self.temporary.name
        self.saved, self.out = self.path("checkpoint_7"), self.path("out")

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def merged(self, *words, code=0, **options):
        done = acc("merge-weights", self.saved, self.out, *words, **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done


class Merge(InFolder):
    def test_a_checkpoint_becomes_one_file_with_parameters_and_buffers(self):
        checkpoint(self.saved, SMALL)
        done = self.merged()
        self.assertEqual(done.stdout, f"{self.out}/model.safetensors\n3 tensors, 40 bytes\n")
        data = contents(self.path("out", "model.safetensors"))
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + length])
        self.assertEqual(header.pop("__metadata__"), {"format": "pt"})
        self.assertEqual({name: (one["dtype"], one["shape"]) for name, one in header.items()},
                         {"a.weight": ("F32", [2, 3]), "b.weight": ("BF16", [4]), "b.count": ("I64", [])})
        for part in ("model", "buffers"):
            for name, (_, _, raw) in SMALL[part].items():
                begin, end = header[name]["data_offsets"]
                self.assertEqual(data[8 + length + begin:8 + length + end], raw)
        self.assertIn("--overwrite replaces it", self.merged(code=1).stderr)
        self.merged("--overwrite")

    def test_a_limit_makes_several_files_and_an_index(self):
        checkpoint(self.saved, SMALL)
        self.merged("--max_shard_size", "24")
        self.assertEqual(sorted(os.listdir(self.out)), ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                                        "model.safetensors.index.json"])
        index = json.loads(contents(self.path("out", "model.safetensors.index.json")))
        self.assertEqual(index["metadata"], {"total_size": 40})
        self.saved, self.out = self.out, self.path("whole")  # and back again
        self.merged()
        self.assertEqual(os.listdir(self.out), ["model.safetensors"])

    @unittest.skipIf(SANITIZED, "a sanitizer takes terabytes of address space")
    def test_memory_doesn_t_grow_with_the_model(self):
        size = 96
        checkpoint(self.saved, {"model": {f"layer.{i}": ("F32", [MIB // 4 * size // 4], bytes(MIB * size // 4)) for i in range(4)}})
        line = f"ulimit -v {size * 1024 // 2}; exec '{ACC}' merge-weights '{self.saved}' '{self.out}'"  # KiB of address space
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(os.path.getsize(self.path("out", "model.safetensors")), size * MIB)

    def test_a_damaged_checkpoint_is_told_and_the_output_is_as_before(self):
        checkpoint(self.saved, SMALL)
        self.merged()
        before = contents(self.path("out", "model.safetensors"))
        path = self.path("checkpoint_7", "model.safetensors")
        data = bytearray(contents(path))
        data[-1] ^= 1
        put(path, data)
        self.assertIn("aren't those that were written", self.merged("--overwrite", code=1).stderr)
        put(path, data[:-1])
        self.assertIn("were written", self.merged("--overwrite", code=1).stderr)
        os.unlink(path)
        self.assertIn("isn't there", self.merged("--overwrite", code=1).stderr)
        self.assertEqual(contents(self.path("out", "model.safetensors")), before)
        self.assertEqual(os.listdir(self.out), ["model.safetensors"])

    def test_a_disk_that_takes_no_more_is_told(self):
        checkpoint(self.saved, {"model": {"a": ("F32", [MIB], bytes(4 * MIB))}})
        line = f"trap '' XFSZ; ulimit -f 2048; exec '{ACC}' merge-weights '{self.saved}' '{self.out}'"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"acc merge-weights: write '.*': File too large")
        self.assertEqual(os.listdir(self.out), [])

    @unittest.skipUnless(is_root(), "a full disk needs root")
    def test_a_full_disk_is_told_before_a_byte_is_written(self):
        checkpoint(self.saved, {"model": {"a": ("F32", [MIB], bytes(4 * MIB))}})
        os.mkdir(self.out)
        line = f"mount -t tmpfs -o size=1m none '{self.out}' && exec '{ACC}' merge-weights '{self.saved}' '{self.out}'"
        done = subprocess.run(["unshare", "--mount", "sh", "-c", line], capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
        if "unshare" in done.stderr or "mount:" in done.stderr:
            self.skipTest(f"no mounts here: {done.stderr.strip()}")
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left on device: 4.2 MB are needed, 1.0 MB are free", done.stderr)

    def test_ctrl_c_leaves_nothing_behind(self):
        checkpoint(self.saved, {"model": {f"l.{i}": ("F32", [8 * MIB], bytes(32 * MIB)) for i in range(4)}})
        process = subprocess.Popen([ACC, "merge-weights", self.saved, self.out], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 10 * PATIENCE
        while not glob.glob(self.path("out", ".tmp-acc.*")) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60 * PATIENCE)
        left = os.listdir(self.out)
        if process.returncode == 0:
            self.skipTest("it was done before the signal came")
        self.assertEqual((process.returncode, left), (130, []), said)
        self.assertIn("stopped by a signal", said)

    def test_nohup_keeps_it_alive_when_the_terminal_is_closed(self):
        checkpoint(self.saved, {"model": {f"l.{i}": ("F32", [8 * MIB], bytes(32 * MIB)) for i in range(4)}})
        line = f"trap '' HUP; exec '{ACC}' merge-weights '{self.saved}' '{self.out}'"
        process = subprocess.Popen(["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 10 * PATIENCE
        while not glob.glob(self.path("out", ".tmp-acc.*")) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        process.send_signal(signal.SIGHUP)
        _, said = process.communicate(timeout=60 * PATIENCE)
        self.assertEqual((process.returncode, os.listdir(self.out)), (0, ["model.safetensors"]), said)

    def test_a_checkpoint_of_pytorch_is_answered_with_its_tool(self):
        os.makedirs(self.saved)
        for name in (".metadata", "__0_0.distcp"):
            put(os.path.join(self.saved, name), b"\x80\x04")
        self.assertIn(f"accelerate merge-weights {self.saved} OUTPUT", self.merged(code=1).stderr)

    def test_wrong_words_are_told(self):
        self.assertIn("not offered", self.merged("--unsafe_serialization", code=2).stderr)
        self.assertIn("No such file", self.merged(code=1).stderr)
        self.assertFalse(os.path.exists(self.out))

    def test_the_checkpoint_is_removed_when_asked(self):
        checkpoint(self.saved, SMALL)
        self.merged("--remove_checkpoint_dir")
        self.assertEqual(os.listdir(self.folder), ["out"])


class Estimate(InFolder):
    def test_the_table_is_the_originals(self):
        put(self.path("m.safetensors"), safetensors({"a.weight": ("F32", [256, 1024], bytes(MIB)), "b": ("F16", [512], bytes(1024))}))
        path = self.path("m.safetensors")
        done = acc("estimate-memory", path, "--dtypes", "float32", "float16", "int8")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual([line.strip("│").split("│") for line in lines if "float" in line or "int8" in line][0][0].strip(), "float32")
        cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines[5:8]]
        self.assertEqual(cells, [["float32", "1.0 MB", "1.0 MB", "4.01 MB"], ["float16", "512.0 KB", "513.0 KB", "2.0 MB"],
                                 ["int8", "256.0 KB", "256.5 KB", "N/A"]])
        told, = json.loads(acc("estimate-memory", path, "--json").stdout)
        self.assertEqual((told["parameters"], told["stored_bytes"], told["largest_layer"]), (256 * 1024 + 512, MIB + 1024, "a"))
        self.assertEqual([row["dtype"] for row in told["rows"]], ["float32", "float16", "int8", "int4"])
        self.assertEqual([row["adam_bytes"] for row in told["rows"]], [4 * (MIB + 2048), 2 * (MIB + 2048), None, None])

    def test_a_checkpoint_counts_its_model_alone(self):
        checkpoint(self.saved, SMALL)
        told, = json.loads(acc("estimate-memory", self.saved, "--json").stdout)
        self.assertEqual((told["parameters"], told["stored_bytes"]), (11, 40))

    def test_blocks_of_transformers_are_layers(self):
        put(self.path("model.safetensors"), safetensors({f"model.layers.{i}.{part}.weight": ("F32", [2], bytes(8)) for i in range(2)
                                                         for part in ("q", "k")}))
        self.assertEqual(json.loads(acc("estimate-memory", self.folder, "--json").stdout)[0]["rows"][0]["largest_layer_bytes"], 8)
        put(self.path("config.json"), b'{"model_type": "llama"}')
        told, = json.loads(acc("estimate-memory", self.folder, "--json").stdout)
        self.assertEqual((told["largest_layer"], told["rows"][0]["largest_layer_bytes"]), ("model.layers.0", 16))

    def test_names_of_the_hub_are_refused(self):
        for name in ("bert-base-cased", "meta-llama/Llama-3.1-8B"):
            done = acc("estimate-memory", name, cwd=self.folder)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"'{name}' is no file or folder here. Models of the Hub aren't downloaded", done.stderr)

    def test_a_damaged_header_is_told(self):
        put(self.path("m.safetensors"), safetensors(SMALL["model"])[:-1])
        done = acc("estimate-memory", self.path("m.safetensors"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("cut short", done.stderr)


class Completion(unittest.TestCase):
    def test_each_flag_that_is_offered_is_one_of_the_word(self):
        offered = acc("--completion", "bash").stdout
        for word in ("merge-weights", "estimate-memory"):
            flags = next(line for line in offered.splitlines() if line.strip().startswith(word + ")")).split("'")[1].split()
            text = acc(word, "--help").stdout
            for flag in flags:
                if flag != "--help":
                    self.assertIn(flag, text)


if __name__ == "__main__":
    main()
