"""What the strictest of the receivers wants of a profile and of what goes with it. Protocol buffers
are decoded by Google's library, which refuses text that is not UTF-8.

    judge(record, data, types) takes a line of receiver.js, or what stands in nginx's log, and
    the profile's bytes, and gives the decoded profile; a rule that is broken raises Broken."""

import calendar
import gzip
import json
import re
import subprocess
import time

PYROSCOPE_SAMPLES = 16000
PYROSCOPE_BYTES = 2_000_000
PARCA_MESSAGE = 64 << 20
DATADOG_FRAMES = 600
HOUR_NS = 3600 * 10**9
ZSTD, GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*"

COUNT, NS, BYTES = "count", "nanoseconds", "bytes"
CPU = [("samples", COUNT), ("cpu", NS)]
WALL = [("samples", COUNT), ("wall", NS)]
ALLOCATED = [("alloc_objects", COUNT), ("alloc_space", BYTES)]
LIVE = [("inuse_objects", COUNT), ("inuse_space", BYTES)]
# By the series' __name__: the sample types that it may have, and its period's type.
METRICS = {
    "process_cpu": ([CPU], ("cpu", NS)),
    "wall": ([WALL], ("wall", NS)),
    "memory": ([ALLOCATED, LIVE, ALLOCATED + LIVE], ("space", BYTES)),
}
# libdatadog's list, of which these are ours.
DATADOG_TYPES = {
    "cpu-samples": COUNT, "cpu-time": NS, "wall-samples": COUNT, "wall-time": NS,
    "alloc-samples": COUNT, "alloc-space": BYTES, "inuse-objects": COUNT, "inuse-space": BYTES,
}
FAMILIES = {"process_cpu": "cpu", "memory": "heap", "wall": "wall"}


class Broken(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Broken(text)


def unpack(data):
    if data[:4] == ZSTD:
        return subprocess.run(["zstd", "-dqc"], input=data, capture_output=True, check=True).stdout
    need(data[:2] == GZIP, "neither gzip nor zstd")
    return gzip.decompress(data)


class Strings:
    """The string table: what is out of range breaks a rule."""

    def __init__(self, table):
        self.table = table

    def __call__(self, index):
        need(0 <= index < len(self.table), f"string {index} is out of range")
        return self.table[index]


def types_of(profile):
    text = Strings(profile.string_table)
    return [(text(each.type), text(each.unit)) for each in profile.sample_type]


def label_names(profile):
    return {profile.string_table[each.key] for sample in profile.sample for each in sample.label}


def check_tables(profile):
    text = Strings(profile.string_table)
    need(profile.string_table and profile.string_table[0] == "", "string 0 is not the empty one")
    for name in ("mapping", "location", "function"):
        ids = [each.id for each in getattr(profile, name)]
        need(ids == list(range(1, len(ids) + 1)), f"{name} ids are not dense")
    need(profile.mapping, "no mapping")
    for mapping in profile.mapping:
        need(text(mapping.filename), "a mapping without a file")
        need(re.fullmatch(r"(?:[0-9a-f]{2})*", text(mapping.build_id)), "a build id")
        need(mapping.memory_start < mapping.memory_limit, "a mapping's range")
    for function in profile.function:
        need(text(function.name), "a function without a name")
        text(function.system_name), text(function.filename)
    for location in profile.location:
        need(location.mapping_id <= len(profile.mapping), "a location's mapping")
        need(location.line or location.address, "a location that is nothing")
        need(all(1 <= each.function_id <= len(profile.function) for each in location.line),
             "a line's function")
        mapping = profile.mapping[location.mapping_id - 1] if location.mapping_id else None
        need(location.line or (mapping and not mapping.has_functions),
             "a location without a line, in a mapping that says it has functions")


def check_label(text, label):
    key = text(label.key)
    need(key and not key.startswith("pprof::"), f"label {key!r}")
    need(not (text(label.str) and label.num), f"label {key} is a text and a number")
    need(text(label.str) or text(label.num_unit), f"label {key} is a number without a unit")


def check_samples(profile):
    text = Strings(profile.string_table)
    need(profile.sample, "no sample")
    seen = set()
    for sample in profile.sample:
        need(len(sample.value) == len(profile.sample_type), "values of a sample")
        need(all(each >= 0 for each in sample.value) and any(sample.value),
             "a sample that is negative or nothing")
        need(sample.location_id, "a sample without a location")
        need(all(1 <= each <= len(profile.location) for each in sample.location_id),
             "a sample's location")
        for label in sample.label:
            check_label(text, label)
        # "normalized" says so: the same stack with the same labels is one sample.
        same = (tuple(sample.location_id),
                tuple(sorted((each.key, each.str, each.num) for each in sample.label)))
        need(same not in seen, "the same sample twice")
        seen.add(same)


def check_time(profile, is_instant):
    now = time.time_ns()
    need(now - HOUR_NS < profile.time_nanos < now + HOUR_NS // 6, "time")
    need((profile.duration_nanos == 0) == is_instant and profile.duration_nanos >= 0, "duration")
    need(profile.period > 0, "period")


def check_profile(plain, kind, types):
    need(plain[:2] != GZIP, "compressed twice")
    profile = types["Profile"].FromString(plain)
    check_tables(profile)
    check_samples(profile)
    check_time(profile, kind == "parca" and types_of(profile) == LIVE)
    return profile


def check_series(record):
    """Labels of a series, as both stores want them."""
    names = [name for name, _ in record["labels"]]
    need(len(set(names)) == len(names) <= 30, "labels, or one twice")
    for name, value in record["labels"]:
        need(re.fullmatch(LABEL, name) and len(name) <= 1024, f"label {name}")
        need(0 < len(value.encode()) <= 2048, f"value of label {name}")
    need(record["together"] == 1, "more than one profile in a request")
    labels = dict(record["labels"])
    need(labels.get("__name__") in METRICS, "__name__")
    return labels


def check_metric(profile, metric):
    shapes, period = METRICS[metric]
    text = Strings(profile.string_table)
    need(types_of(profile) in shapes, f"sample types of {metric}: {types_of(profile)}")
    need((text(profile.period_type.type), text(profile.period_type.unit)) == period, "period type")


def judge_pyroscope(record, plain, profile):
    labels = check_series(record)
    check_metric(profile, labels["__name__"])
    need(labels.get("__delta__") == "false" and labels.get("service_name"), "series labels")
    need(re.fullmatch(UUID, record["id"]), "ID")
    need(record["protocol"] == "connect", "protocol")
    need(record["headers"]["content-type"] == "application/proto", "content type")
    need(not any("-" in name for name, _ in types_of(profile)), "a sample type with a hyphen")
    need(len(profile.sample) <= PYROSCOPE_SAMPLES, f"{len(profile.sample)} samples")
    need(len(plain) < PYROSCOPE_BYTES, f"{len(plain)} bytes")
    need(not any(each.str for sample in profile.sample for each in sample.label),
         "a label of samples would be a series each")


def judge_parca(record, plain, profile):
    labels = check_series(record)
    check_metric(profile, labels["__name__"])
    need(record["normalized"] is True, "normalized")
    need(record["protocol"] == "grpc-web", "protocol")
    need(len(plain) < PARCA_MESSAGE, f"{len(plain)} bytes")
    need(types_of(profile) != ALLOCATED + LIVE, "what is live has to go apart")


def check_tags(event):
    tags = event["tags_profiler"].split(",")
    for tag in tags:
        need(len(tag.encode()) <= 200 and ":" in tag.strip(":") and tag == tag.strip(":"), f"tag {tag}")
    names = [each.split(":", 1)[0] for each in tags]
    need(len(set(names)) == len(names), "a tag twice")
    need({"service", "runtime-id", "process_id", "profile_seq"} <= set(names), "tags")
    need({"language:native", "runtime:native"} <= set(tags), "tags of the runtime")
    need("host" not in names, "the agent sets the host")


def ns_of(iso):
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{9})Z", iso)
    need(match, f"time {iso}")
    return calendar.timegm(time.strptime(match[1], "%Y-%m-%dT%H:%M:%S")) * 10**9 + int(match[2])


def judge_datadog(record, plain, profile):
    event = json.loads(record["event"])
    need(event["version"] == "4" and event["family"] == "native", "version or family")
    names = [name for name, _, _ in record["parts"]]
    need(names == ["event"] + event["attachments"], f"parts {names}")
    need(record["parts"][0][1:] == ["event.json", "application/json"], "event.json")
    need(all(file == name for name, file, _ in record["parts"][1:]), "an attachment's file name")
    need(ns_of(event["start"]) == profile.time_nanos, "start")
    need(ns_of(event["end"]) == profile.time_nanos + profile.duration_nanos, "end")
    check_tags(event)
    types = types_of(profile)
    need(len(dict(types)) == len(types), "a sample type twice")
    need(all(DATADOG_TYPES.get(name) == unit for name, unit in types), f"sample types {types}")
    need(label_names(profile) <= {"thread id", "thread name", "state"}, f"labels {label_names(profile)}")
    need(all(len(each.location_id) <= DATADOG_FRAMES for each in profile.sample), "depth")
    need(record["headers"]["dd-evp-origin"] and record["headers"]["dd-evp-origin-version"], "origin")


def judge_post(record, plain, profile):
    need(int(record["start"]) == profile.time_nanos, "start")
    need(int(record["end"]) == profile.time_nanos + profile.duration_nanos, "end")
    metric = {family: name for name, family in FAMILIES.items()}[record["family"]]
    check_metric(profile, metric)


JUDGES = {"pyroscope": judge_pyroscope, "parca": judge_parca, "datadog": judge_datadog,
          "post": judge_post}


def judge(record, data, types):
    need("error" not in record, record.get("error"))
    kind = record["kind"]
    need((data[:4] == ZSTD) == (kind == "datadog"), "compression")
    plain = unpack(data)
    profile = check_profile(plain, kind, types)
    JUDGES[kind](record, plain, profile)
    return profile


def family_of(record):
    if "labels" in record:
        return FAMILIES[dict(record["labels"])["__name__"]]
    return record.get("family", "all")


def total(profile, name):
    """The sum of the values of a sample type."""
    names = [each for each, _ in types_of(profile)]
    return sum(each.value[names.index(name)] for each in profile.sample) if name in names else 0
