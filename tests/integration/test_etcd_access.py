"""Jobs that meet through an etcd with TLS, client certificates and users: what works, and what each refusal says. Certificates are made by
openssl. Skips where Debian's etcd-server, etcd-client or openssl aren't installed."""
import os, shutil, subprocess, tempfile, time, unittest

from harness import Job, JobTest, main, own_token, until
from test_etcd_nodes import STEADY, Etcd, free_port, needs_etcd

needs_openssl = unittest.skipUnless(shutil.which("openssl"), "not installed: openssl")


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


class Authority:
    """A CA of our own. Certificates are for both ends: etcd's gateway shows the server's to itself."""

    def __init__(self, folder, name):
        self.folder, self.ca, self.key = folder, os.path.join(folder, f"{name}.pem"), os.path.join(folder, f"{name}.key")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key, "-out", self.ca, "-days", "2", "-subj", f"/CN={name}")

    def issue(self, name, alternatives):
        certificate, key, request = (os.path.join(self.folder, f"{name}.{kind}") for kind in ("crt", "key", "csr"))
        extensions = os.path.join(self.folder, f"{name}.ext")
        with open(extensions, "w") as file:
            file.write(f"subjectAltName={alternatives}\nextendedKeyUsage=serverAuth,clientAuth\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.key, "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", certificate)
        return certificate, key


@needs_openssl
@needs_etcd
class Access(JobTest):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(prefix="acc-etcd-access-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.authority = Authority(self.folder, "ca")
        self.jobs = {}

    def path(self, name):
        return os.path.join(self.folder, name)

    def etcd(self, **options):
        etcd = Etcd("127.0.0.1", **options)
        self.addCleanup(etcd.close)
        return etcd

    def tls_etcd(self, alternatives="IP:127.0.0.1", asks_for_certificate=False):
        certificate, key = self.authority.issue("server", alternatives)
        flags = ["--cert-file", certificate, "--key-file", key]
        client = [f"--cacert={self.authority.ca}", "--insecure-skip-tls-verify"]
        if asks_for_certificate:
            flags += ["--client-cert-auth", "--trusted-ca-file", self.authority.ca]
            client += [f"--cert={certificate}", f"--key={key}"]
        return self.etcd(scheme="https", flags=flags, client=client)

    def user_file(self, text="train:correct:horse", mode=0o600):
        path = self.path("user")
        with open(path, "w") as file:
            file.write(text + "\n")
        os.chmod(path, mode)
        return path

    def with_users(self, etcd):
        """A user that may write below /acc/ and nowhere else."""
        for words in (("user", "add", "root:root"), ("user", "grant-role", "root", "root"), ("user", "add", "train:correct:horse"), ("role", "add", "acc"),
                      ("role", "grant-permission", "acc", "--prefix=true", "readwrite", "/acc/"), ("user", "grant-role", "train", "acc"), ("auth", "enable")):
            done = etcd.ctl(*words)
            self.assertEqual(done.returncode, 0, f"etcdctl {' '.join(words)}: {done.stderr}")
        etcd.client.append("--user=root:root")
        return etcd

    def start(self, name, endpoint, more="", words="exit=0 after=300ms", env=None, **options):
        job = Job(f"--cpu --nnodes 2 --nproc_per_node 1 --rdzv_backend etcd --rdzv_endpoint {endpoint} --node_name {name} {STEADY} {more}", words, token=own_token("etcd"), env=env or {}, **options)
        self.addCleanup(job.close)
        self.jobs[name] = job
        return job

    def assert_succeeds(self, etcd, more="", env=None):
        for name in "ab":
            self.start(name, etcd.url, more, env=env)
        for name, job in self.jobs.items():
            self.assertEqual(job.wait(), 0, f"{name}:\n{job.stderr}")
        self.assertEqual(etcd.keys(), [])

    def assert_told(self, endpoint, more, *expected, env=None):
        """One agent alone says what is wrong long before it gives up."""
        job = self.start("a", endpoint, f"{more} --join_timeout 5s", env=env)
        self.assertEqual(job.wait(), 69, job.stderr)
        for text in expected:
            self.assertIn(text, job.stderr)

    # ---- certificates ----

    def test_a_job_over_tls(self):
        self.assert_succeeds(self.tls_etcd(), f"--etcd_cacert {self.authority.ca}")

    def test_a_certificate_of_an_unknown_ca_is_refused(self):
        etcd = self.tls_etcd()
        self.assert_told(etcd.url, "", "its certificate was refused, by the system's CAs", "--etcd_cacert FILE")
        other = Authority(self.folder, "other")
        self.assert_told(etcd.url, f"--etcd_cacert {other.ca}", f"by --etcd_cacert '{other.ca}'")

    def test_a_certificate_for_another_name_is_refused(self):
        self.assert_told(self.tls_etcd("DNS:etcd.example").url, f"--etcd_cacert {self.authority.ca}", "its certificate is not for '127.0.0.1'")

    def test_a_client_certificate_is_shown(self):
        etcd = self.tls_etcd(asks_for_certificate=True)
        certificate, key = self.authority.issue("client", "DNS:client")
        self.assert_succeeds(etcd, f"--etcd_cacert {self.authority.ca} --etcd_cert {certificate} --etcd_key {key}")

    def test_a_missing_or_foreign_client_certificate_is_told(self):
        etcd = self.tls_etcd(asks_for_certificate=True)
        self.assert_told(etcd.url, f"--etcd_cacert {self.authority.ca}", "asks for a client certificate", "--etcd_cert and --etcd_key")
        certificate, key = Authority(self.folder, "other").issue("client", "DNS:client")
        self.assert_told(etcd.url, f"--etcd_cacert {self.authority.ca} --etcd_cert {certificate} --etcd_key {key}", f"refused --etcd_cert '{certificate}'")

    def test_a_file_of_no_use_is_named_at_once(self):
        certificate, _ = self.authority.issue("client", "DNS:client")
        for more, expected in ((f"--etcd_cacert {self.path('none.pem')}", f"--etcd_cacert '{self.path('none.pem')}': No such file"),
                               (f"--etcd_cert {certificate} --etcd_key {self.authority.key}", f"--etcd_key '{self.authority.key}': key values mismatch")):
            job = self.start("a", "https://127.0.0.1:2379", more)
            self.assertNotEqual(job.wait(), 0)
            self.assertIn(expected, job.stderr)

    def test_an_etcd_key_with_a_pass_phrase_made_the_launcher_wait_for_it_for_ever(self):
        certificate, key = self.authority.issue("client", "DNS:client")
        for name, form in (("pkcs8", ("pkcs8", "-topk8")), ("traditional", ("ec", "-aes256"))):
            encrypted = self.path(f"{name}.key")
            openssl(*form, "-in", key, "-out", encrypted, "-passout", "pass:phrase")
            given, kept = os.pipe()  # a standard input that gives nothing, as a terminal nobody types at
            self.addCleanup(os.close, kept)
            job = self.start("a", "https://127.0.0.1:2379", f"--etcd_cert {certificate} --etcd_key {encrypted}", stdin=given)
            os.close(given)
            self.assertNotEqual(job.wait(10), 0)
            for text in (f"--etcd_key '{encrypted}': it is encrypted", "openssl pkey"):
                self.assertIn(text, job.stderr)
            self.assertNotIn("Enter PEM", job.stderr, "OpenSSL's question")

    def test_https_to_a_plain_etcd_and_the_reverse(self):
        plain = self.etcd()
        self.assert_told(plain.url.replace("http:", "https:"), "", "no TLS is spoken there", "write http://")
        self.assert_told(self.tls_etcd().url.replace("https:", "http:"), "", "write https://")

    # ---- users ----

    def test_a_job_with_a_user_from_a_file_or_the_environment(self):
        etcd = self.with_users(self.etcd())
        self.assert_succeeds(etcd, f"--etcd_user_file {self.user_file()}")
        self.assert_succeeds(etcd, env={"ACC_ETCD_USER": "train:correct:horse"})

    def test_a_user_where_none_is_asked_for_is_no_matter(self):
        self.assert_succeeds(self.etcd(), f"--etcd_user_file {self.user_file()}")

    def test_a_forgotten_token_is_replaced(self):
        etcd = self.with_users(self.etcd())
        user = self.user_file()  # once: an agent may read it already
        for name in "ab":
            self.start(name, etcd.url, f"--etcd_user_file {user} --dead_after 20s --lease 41s", words="hold")
        until(lambda: "/acc/none/table" in etcd.keys(), lambda: "a round: " + "".join(job.stderr for job in self.jobs.values()), 10)
        begun = time.monotonic()
        etcd.restart()  # it keeps tokens in memory only, and is back before the leader's 20 s are over
        self.assertLess(time.monotonic() - begun, 20)
        begun = time.monotonic()
        lease = 20
        until(lambda: time.monotonic() - begun > 1.5 * lease, "a lease of the leader to pass", 2 * lease)
        self.assertIn("/acc/none/leader", etcd.keys())
        for job in self.jobs.values():
            self.assertNotIn("no longer the coordinator", job.stderr)
        self.jobs["a"].process.terminate()
        for job in self.jobs.values():
            self.assertEqual(job.wait(), 143, job.stderr)

    def test_what_etcd_refuses_is_told(self):
        etcd = self.with_users(self.etcd())
        self.assert_told(etcd.url, "", "it asks for a user", "--etcd_user_file", "ACC_ETCD_USER")
        wrong = self.user_file("train:wrong")
        self.assert_told(etcd.url, f"--etcd_user_file {wrong}", f"log in as 'train' (etcd user file '{wrong}')", "authentication failed")
        self.assert_told(etcd.url, "--etcd_prefix /elsewhere", "permission denied", "grant-permission", env={"ACC_ETCD_USER": "train:correct:horse"})

    def test_a_password_that_others_can_read_is_refused(self):
        job = self.start("a", "http://127.0.0.1:2379", f"--etcd_user_file {self.user_file(mode=0o644)}")
        self.assertNotEqual(job.wait(), 0)
        self.assertIn("is open to others", job.stderr)
        job = self.start("a", "http://127.0.0.1:2379", env={"ACC_ETCD_USER": "no-password"})
        self.assertNotEqual(job.wait(), 0)
        self.assertIn("ACC_ETCD_USER: one line NAME:PASSWORD is expected", job.stderr)


if __name__ == "__main__":
    main()
