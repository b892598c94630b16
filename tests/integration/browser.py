"""A headless Chromium, driven by the WebDriver protocol of its chromedriver: plain HTTP and JSON."""
import base64, http.client, json, os, shutil, subprocess, tempfile

from harness import SLACK, free_port, is_root, until

DRIVER, CHROMIUM = shutil.which("chromedriver"), shutil.which("chromium")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name of a reference to an element
KEYS = {"tab": "\ue004", "enter": "\ue007", "down": "\ue015", "right": "\ue014"}


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="acc-browser-")
        self.port = free_port()
        self.session = None
        environment = {**os.environ, "HOME": self.folder, "XDG_CONFIG_HOME": self.folder, "XDG_CACHE_HOME": self.folder}
        with open(os.path.join(self.folder, "driver.log"), "wb") as log:
            self.driver = subprocess.Popen([DRIVER, f"--port={self.port}"], stdout=log, stderr=log, env=environment)
        try:
            until(self.is_ready, "chromedriver", 30)
            flags = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                     f"--user-data-dir={self.folder}/data"] + (["--no-sandbox"] if is_root() else [])
            wish = {"browserName": "chrome", "goog:chromeOptions": {"binary": CHROMIUM, "args": flags}, "goog:loggingPrefs": {"browser": "ALL"}}
            self.session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wish}})["sessionId"]
        except BaseException:
            self.close()
            raise

    def is_ready(self):
        try:
            return self.call("GET", "/status")["ready"]
        except OSError:
            return False

    def call(self, method, path, body=None):
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120 * SLACK)
        try:
            line.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
            answer = json.loads(line.getresponse().read())
        finally:
            line.close()
        value = answer["value"]
        if isinstance(value, dict) and "error" in value and "message" in value:
            raise AssertionError(f"{path}: {value['error']}: {value['message'][:500]}")
        return value

    def do(self, method, path, body=None):
        return self.call(method, f"/session/{self.session}{path}", body)

    def close(self):
        if self.session:
            self.do("DELETE", "")
        self.driver.terminate()
        self.driver.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- what a test does ----

    def open(self, address):
        self.do("POST", "/url", {"url": address})

    @property
    def address(self):
        return self.do("GET", "/url")

    def find(self, selector):
        return self.do("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        """As a mouse does: refused where something else lies above. The page may replace an element that was just found."""
        for attempt in range(5):
            try:
                return self.do("POST", f"/element/{self.find(selector)}/click", {})
            except AssertionError as wrong:
                if attempt == 4 or "stale element" not in str(wrong):
                    raise

    def press(self, selector, keys):
        self.do("POST", f"/element/{self.find(selector)}/value", {"text": KEYS.get(keys, keys)})

    def run(self, script, *arguments):
        """The value of the script; what is a promise is awaited."""
        return self.do("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def wait(self, script, what, deadline=20.0):
        return until(lambda: self.run(f"return {script}"), what, deadline)

    def look(self, width, height, is_dark=False, is_phone=False):
        """The size of the window in CSS pixels, and the user's colour scheme."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if is_phone else 1, mobile=is_phone)
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}])

    def cdp(self, command, **parameters):
        return self.do("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.do("GET", "/screenshot")))

    def complaints(self):
        """Errors that the browser logged since the last call: what a policy refused, exceptions, failed requests."""
        return [entry["message"] for entry in self.do("POST", "/se/log", {"type": "browser"}) if entry["level"] == "SEVERE"]
