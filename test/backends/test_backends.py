"""What is sent, as receivers made by others take it: make test-backends."""

import collections
import copy
import os
import sys
import unittest

import broken_server
import profile_rules
from profiled import PROGRAMS, Profiled, recursion
from receivers import TYPES, Authority, Folder, Nginx, Node


def cpu_in(profiles):
    return sum(profile_rules.total(each, "cpu") + profile_rules.total(each, "cpu-time")
               for each in profiles)


def allocated_in(profiles):
    return sum(profile_rules.total(each, "alloc_space") + profile_rules.total(each, "alloc-space")
               for each in profiles)


class Backends(unittest.TestCase):
    def use(self, thing):
        self.addCleanup(thing.close)
        return thing

    def recursion(self, *arguments, **options):
        return self.use(recursion(*arguments, **options))

    def expect_once(self, taken):
        """No profile twice: a window begins at its time."""
        for records in taken.values():
            keys = [(profile.time_nanos, profile_rules.types_of(profile)) for _, profile in records]
            for key in keys:
                self.assertEqual(keys.count(key), 1, "a window arrived twice")

    def expect_all(self, run, taken):
        """What arrived is what the files hold, and each profile's end is `sent`."""
        self.expect_once(taken)
        cpu = cpu_in(run.files("cpu").values())
        allocated = allocated_in(run.files("heap").values())
        self.assertGreater(cpu, 0)
        for kind, records in taken.items():
            profiles = [profile for _, profile in records]
            self.assertEqual(cpu_in(profiles), cpu, kind)
            self.assertEqual(allocated_in(profiles), allocated, kind)
        ends = run.ends()
        self.assertEqual({word for _, word in ends}, {"sent"})
        self.assertEqual(len(ends), sum(len(records) for records in taken.values()))


class Arrives(Backends):
    def test_all_at_once(self):
        node = self.use(Node())
        nginx = self.use(Nginx())
        url = f"http://127.0.0.1:{node.port}"
        run = self.recursion(
            3500, PERIOD="1s", SERVICE="shop", TAGS="team:caf\u00e9,a-b:1, long:" + "x" * 300,
            PROFILES="cpu,alloc,heap,wall",
            UPLOAD_URL=f"pyroscope+{url},parca+{url},datadog+{url},http://127.0.0.1:{nginx.port}/put")
        taken = {kind: node.taken(kind) for kind in ("pyroscope", "parca", "datadog")}
        taken["post"] = nginx.taken()
        self.expect_all(run, taken)
        for kind, records in taken.items():
            families = collections.Counter(profile_rules.family_of(record) for record, _ in records)
            wanted = {"all"} if kind == "datadog" else {"cpu", "heap", "wall"}
            self.assertEqual(set(families), wanted, kind)
            self.assertGreaterEqual(min(families.values()), 3, families)
        self.assertEqual({record["service"] for record, _ in taken["post"]}, {"shop"})
        for kind in ("pyroscope", "parca"):
            for record, _ in taken[kind]:
                labels = dict(record["labels"])
                self.assertEqual(labels["a_b"], "1")
                self.assertEqual(labels.get("job", labels.get("service_name")), "shop")

    def test_datadog_by_unix_socket(self):
        folder = self.use(Folder())
        node = self.use(Node(address=f"{folder.path}/apm.socket"))
        run = self.recursion(1500, PERIOD="1s", UPLOAD_URL=f"datadog+unix://{node.address}")
        self.expect_all(run, {"datadog": node.taken("datadog")})

    def test_tls(self):
        authority = self.use(Authority())
        node = self.use(Node(tls=authority))
        nginx = self.use(Nginx(tls=authority))
        url = f"https://127.0.0.1:{node.port}"
        urls = f"pyroscope+{url},parca+{url},datadog+{url},https://127.0.0.1:{nginx.port}/put"
        run = self.recursion(300, UPLOAD_URL=urls, CA_FILE=authority.file)
        self.expect_all(run, {"pyroscope": node.taken("pyroscope"), "parca": node.taken("parca"),
                              "datadog": node.taken("datadog"), "post": nginx.taken()})
        before = len(node.taken()) + len(nginx.taken())
        # Another authority's word is none.
        other = self.use(Authority())
        run = self.recursion(300, UPLOAD_URL=urls, CA_FILE=other.file, EXIT_TIMEOUT="1s")
        self.assertEqual(len(node.taken()) + len(nginx.taken()), before)
        self.assertEqual({word for _, word in run.ends()}, {"dropped"})

    def test_text_that_is_no_text(self):
        node = self.use(Node())
        url = f"http://127.0.0.1:{node.port}"
        script = ("import ctypes, threading, time\n"
                  "def work():\n"
                  "    ctypes.CDLL(None).prctl(15, b'\\xff\\xfe-\\xc3', 0, 0, 0)\n"
                  "    end = time.process_time() + 0.5\n"
                  "    while time.process_time() < end: [0] * 10000\n"
                  "thread = threading.Thread(target=work); thread.start(); thread.join()\n")
        run = self.use(Profiled(
            ["/usr/bin/python3", "-c", script], {b"LIBAGENT_TAGS": b"a:\xff\xfe,b:\xc3", b"DD_ENV": b"\xe9t\xe9"},
            UPLOAD_URL=f"pyroscope+{url},parca+{url},datadog+{url}").wait())
        self.assertEqual(run.process.returncode, 0)
        self.expect_all(run, {kind: node.taken(kind) for kind in ("pyroscope", "parca", "datadog")})

    def test_limits_of_pyroscope(self):
        """32,768 stacks: 16,000 samples arrive, and the sums stay; others get all."""
        node = self.use(Node())
        url = f"http://127.0.0.1:{node.port}"
        run = self.use(Profiled([PROGRAMS / "prog_many_stacks", "15"], PROFILES="alloc",
                                ALLOC_INTERVAL="1", MEMORY="512MiB", EXIT_TIMEOUT="30s",
                                UPLOAD_URL=f"pyroscope+{url},parca+{url}").wait())
        self.assertEqual(run.process.returncode, 0)
        taken = {kind: [profile for _, profile in node.taken(kind)] for kind in ("pyroscope", "parca")}
        self.assertGreater(sum(len(each.sample) for each in taken["parca"]), 32000)
        self.assertGreater(sum(len(each.sample) for each in taken["pyroscope"]), 10000)
        whole = allocated_in(run.files("heap").values())
        self.assertGreater(whole, 32768 * 100)
        for kind, profiles in taken.items():
            self.assertEqual(allocated_in(profiles), whole, kind)


class Refused(Backends):
    def after(self, refused, taken):
        """From the first refusal to the first profile that was taken, in seconds."""
        return min(record["at"] for record, _ in taken) - refused[0]["at"]

    def test_too_many_requests(self):
        """Both forms of Retry-After are waited for, then each window arrives, once."""
        # A date has no fractions: up to a second less.
        for form, least in (("3", 3), ("date+4", 3)):
            for kind, code in (("pyroscope", "resource_exhausted"), ("datadog", "429")):
                with self.subTest(form=form, kind=kind):
                    node = self.use(Node(answers=[f"{code} {form}"]))
                    run = self.recursion(6000, PERIOD="1s", PROFILES="cpu", EXIT_TIMEOUT="10s",
                                         UPLOAD_URL=f"{kind}+http://127.0.0.1:{node.port}")
                    refused, taken = node.refused(), node.taken(kind)
                    self.assertEqual(len(refused), 1)
                    self.assertGreaterEqual(self.after(refused, taken), least - 0.01)
                    self.expect_all(run, {kind: taken})

    def test_limited_by_nginx(self):
        """A window each second, where one in two seconds is taken: what nginx refuses is waited for."""
        node = self.use(Node())
        nginx = self.use(Nginx(upstream=f"http://127.0.0.1:{node.port}/"))
        run = self.recursion(4000, PERIOD="1s", PROFILES="cpu", EXIT_TIMEOUT="60s",
                             UPLOAD_URL=f"pyroscope+http://127.0.0.1:{nginx.port}/slow")
        statuses = collections.Counter(each["status"] for each in nginx.requests())
        self.assertGreaterEqual(statuses[429], 1, statuses)
        taken = node.taken("pyroscope")
        self.expect_once({"pyroscope": taken})
        self.assertEqual(statuses[200], len(taken))
        sent = [key for key, word in run.ends() if word == "sent"]
        self.assertEqual(len(sent), len(taken))

    def test_too_large(self):
        """nginx takes less than a profile: it is dropped, and the next is halved until it fits."""
        node = self.use(Node())
        nginx = self.use(Nginx(upstream=f"http://127.0.0.1:{node.port}/", limit="9k"))
        run = self.use(Profiled([PROGRAMS / "prog_many_stacks", "17"], PROFILES="alloc", PERIOD="1s",
                                ALLOC_INTERVAL="1", EXIT_TIMEOUT="10s", MEMORY="512MiB",
                                UPLOAD_URL=f"pyroscope+http://127.0.0.1:{nginx.port}/small").wait())
        requests = [(each["status"], int(each["length"])) for each in nginx.requests()]
        refused = [length for status, length in requests if status == 413]
        self.assertGreaterEqual(len(refused), 1, requests)
        words = collections.Counter(word for _, word in run.ends())
        self.assertEqual(words["dropped"], len(refused), run.log())
        self.assertEqual(words["sent"], len(node.taken("pyroscope")))
        if len(refused) > 2:
            self.assertLess(refused[-1], refused[0] * 3 / 4, requests)

    def test_grpc_statuses(self):
        """Parca's answers come with status 200: what is for ever is dropped and said, the rest is tried
        again, and arrives."""
        for code, ends, said in (("invalid_argument", {"dropped", "sent"}, "does not take the profile"),
                                 ("unauthenticated", {"dropped"}, "refuses the credentials"),
                                 ("unavailable", {"sent"}, "not available"),
                                 ("internal", {"sent"}, "the server fails"),
                                 ("deadline_exceeded", {"sent"}, "not available")):
            with self.subTest(code=code):
                node = self.use(Node(answers=[code]))
                run = self.recursion(2500, PROFILES="cpu", EXIT_TIMEOUT="10s", PERIOD="1s",
                                     UPLOAD_URL=f"parca+http://127.0.0.1:{node.port}")
                self.assertIn(said, run.log())
                self.assertEqual(len(node.refused()), 1)
                words = [word for _, word in run.ends()]
                self.assertEqual(set(words), ends, run.log())
                taken = node.taken("parca")
                self.assertEqual(len(taken), words.count("sent"))
                if ends == {"sent"}:
                    self.expect_all(run, {"parca": taken})


class Broken(Backends):
    """A backend that does its worst costs the program nothing that it would notice, and gets no
    profile twice."""

    CASES = {  # behaviour: does a whole request reach it?
        broken_server.never_reads: None,
        broken_server.never_answers: True,
        broken_server.resets_at_once: None,
        broken_server.resets_in_the_middle: None,
        broken_server.resets_after_all: True,
        broken_server.answers_garbage: True,
        broken_server.answers_half_a_status: True,
        broken_server.answers_without_end: True,
        broken_server.sends_headers_without_end: True,
        broken_server.redirects_without_end: True,
    }

    def test_costs_nothing(self):
        healthy = self.use(Node())
        options = {"PERIOD": "1s", "EXIT_TIMEOUT": "1s"}
        good = self.recursion(1500, UPLOAD_URL=f"pyroscope+http://127.0.0.1:{healthy.port}", **options)
        for behaviour, arrives in self.CASES.items():
            with self.subTest(behaviour=behaviour.__name__):
                server = self.use(broken_server.BrokenServer(behaviour))
                run = self.recursion(1500, UPLOAD_URL=f"pyroscope+http://127.0.0.1:{server.port}", **options)
                ends = run.ends()
                made = len(run.files("cpu")) + len(run.files("heap"))
                self.assertEqual(len(ends), made, run.log())
                self.assertEqual(len({key for key, _ in ends}), made, "two ends of a profile")
                self.assertNotIn("sent", [word for _, word in ends])
                # Each whole request is another profile's: none is sent again.
                self.assertLessEqual(server.whole, made)
                if arrives:
                    self.assertGreaterEqual(server.whole, 1)
                self.assertLess(server.connections, 30)
                # CPU time of 1.5 s is the program's own; libcurl's start is in both.
                self.assertLess(run.cpu_ns, good.cpu_ns * 1.3 + 3e8)
                self.assertLess(run.resident_kib, good.resident_kib + 8192)
                self.assertLess(run.seconds - run.cpu_ns / 1e9, good.seconds - good.cpu_ns / 1e9 + 15)


class Rules(Backends):
    """The judge judged: a profile that arrived is broken in each way, and is refused for that."""

    BREAKS = {
        "mapping ids": lambda p: setattr(p.mapping[-1], "id", 99),
        "function ids": lambda p: setattr(p.function[0], "id", 2),
        "location ids": lambda p: setattr(p.location[-1], "id", 0),
        "string 0": lambda p: p.string_table.__setitem__(0, "x"),
        "string": lambda p: setattr(p.function[0], "name", 1 << 30),
        "values": lambda p: p.sample[0].value.append(1),
        "negative": lambda p: p.sample[0].value.__setitem__(0, -1),
        "location": lambda p: p.sample[0].location_id.append(1 << 20),
        "no location": lambda p: p.sample[0].ClearField("location_id"),
        "twice": lambda p: p.sample.append(copy.deepcopy(p.sample[0])),
        "time": lambda p: setattr(p, "time_nanos", 10**18),
        "duration": lambda p: setattr(p, "duration_nanos", 0),
        "type": lambda p: p.string_table.__setitem__(p.sample_type[1].type, "cpu-time"),
        "samples": lambda p: p.sample.extend([p.sample[0]] * profile_rules.PYROSCOPE_SAMPLES),
    }

    def test_each_rule(self):
        node = self.use(Node())
        self.recursion(300, PROFILES="cpu", UPLOAD_URL=f"pyroscope+http://127.0.0.1:{node.port}")
        (record, profile), = node.taken("pyroscope")
        profile_rules.judge(record, self.packed(profile), TYPES)
        for name, damage in self.BREAKS.items():
            with self.subTest(rule=name):
                damaged = copy.deepcopy(profile)
                damage(damaged)
                with self.assertRaises(profile_rules.Broken):
                    profile_rules.judge(record, self.packed(damaged), TYPES)
        for name, change in (("a label twice", {"labels": record["labels"] + [record["labels"][0]]}),
                             ("id", {"id": "1"}), ("two", {"together": 2}),
                             ("delta", {"labels": [each for each in record["labels"]
                                                   if each[0] != "__delta__"]})):
            with self.subTest(rule=name), self.assertRaises(profile_rules.Broken):
                profile_rules.judge(record | change, self.packed(profile), TYPES)

    def test_utf8(self):
        node = self.use(Node())
        self.recursion(300, PROFILES="cpu", UPLOAD_URL=f"pyroscope+http://127.0.0.1:{node.port}")
        (record, profile), = node.taken("pyroscope")
        plain = profile.SerializeToString()
        self.assertIn(b"nanoseconds", plain)
        with self.assertRaises(Exception):
            profile_rules.judge(record, profile_rules.gzip.compress(
                plain.replace(b"nanoseconds", b"nanosecond\xff")), TYPES)

    @staticmethod
    def packed(profile):
        return profile_rules.gzip.compress(profile.SerializeToString())


if __name__ == "__main__":
    os.chdir("/")
    unittest.main(verbosity=2, argv=sys.argv, warnings="ignore")
