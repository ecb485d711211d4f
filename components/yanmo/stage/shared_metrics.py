"""What every process of a stage serves on /metrics; of its GPUs too, where it may use some.

Standard library only, as a stage's declaration is read by the pipeline compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from yanmo.stage.declaration import Label, Metric

STATES = ("starting", "working", "handing_over", "done", "paused", "failed")
"""What a stage does: reads options and inputs; makes its output; moves pointers; how it ended."""
REASONS = ("store", "lease", "retry")
"""As in common/waiting.py."""
REQUESTS = ("read", "write", "stat", "list", "copy", "delete")
"""As REQUEST_KINDS of store/objects.py; a test compares both."""

_REASON = Label(name="reason", values=REASONS)
_WORK = Label(name="work", about="what is counted, with its unit", zh="所计之事及其单位", most=16)
_KIND = Label(name="kind", values=REQUESTS)

RUN_INFO = Metric(
    room="run",
    name="info",
    help="The run, always 1: join it by pod; id and key are labels of this metric alone",
    zh="这次运行，恒为 1；按 Pod 连接；运行编号与键只是本指标的标签",
    labels=(
        Label(name="stage", about="name of the stage", zh="阶段名"),
        Label(name="run_id", about="id of the pipeline run", zh="流水线运行的编号", most=1),
        Label(name="channel", about="its series of runs", zh="所属的运行系列（频道）", most=1),
        Label(name="key", about="first 12 digits of the output's key", zh="输出的键，前 12 位", most=1),
        Label(name="model", about="first 12 digits of the model's key", zh="模型的键，前 12 位", most=1),
        Label(name="options_digest", about="digest of the options in the key", zh="键内选项的摘要", most=1),
        Label(name="version", about="commit or version of Yanmo", zh="Yanmo 的提交或版本", most=1),
    ),
)

EVERY_STAGE: tuple[Metric, ...] = (
    RUN_INFO,
    Metric(
        room="stage",
        name="state",
        help="1 for what the stage does now, 0 for the rest",
        zh="阶段当前所做之事为 1，其余为 0",
        labels=(Label(name="state", values=STATES),),
        alert="YanmoStageFailed",
    ),
    Metric(
        room="stage",
        name="exit_code",
        help="Exit code, once the stage has ended",
        zh="阶段结束后的退出码",
        final=True,
    ),
    Metric(
        room="stage",
        name="end_timestamp_seconds",
        help="Unix time at which the stage ended",
        zh="阶段结束的 Unix 时间",
        final=True,
    ),
    Metric(
        room="stage",
        name="last_success_timestamp_seconds",
        help="Unix time at which the stage ended with its output handed over",
        zh="阶段交出输出并结束的 Unix 时间",
        final=True,
        alert="YanmoMissedNight",
    ),
    Metric(
        room="stage",
        name="tries",
        kind="counter",
        help="Tries of the stage in this process, the first included",
        zh="本进程中该阶段尝试的次数，含第一次",
        lasts=True,
        alert="YanmoRetries",
    ),
    Metric(
        room="stage",
        name="outputs",
        kind="counter",
        help="Outputs that this run needed: found in the store, made now, or adopted from another run",
        zh="本次运行所需的输出：在存储中找到、现在做成，或取自另一次运行",
        labels=(
            Label(name="part", about="stage or part that makes it", zh="做它的阶段或部件", most=32),
            Label(name="result", values=("found", "made", "adopted")),
        ),
        lasts=True,
        final=True,
    ),
    Metric(
        room="stage",
        name="work_done",
        help="How much is done of what this stage counts now",
        zh="本阶段当前所计之事已完成多少",
        labels=(_WORK,),
    ),
    Metric(
        room="stage",
        name="work",
        help="How much there is to do of what this stage counts now",
        zh="本阶段当前所计之事共有多少",
        labels=(_WORK,),
    ),
    Metric(
        room="stage",
        name="work_age_seconds",
        help="Seconds since any of it was done; it grows while nothing moves",
        zh="距其中任何一件完成的秒数；停滞时不断增长",
        alert="YanmoStageStalled",
    ),
    Metric(
        room="stage",
        name="workers",
        help="Worker processes that are alive",
        zh="存活的工作进程数",
    ),
    Metric(
        room="stage",
        name="disk_free_bytes",
        help="Free space of the disk that holds the work in progress",
        zh="存放进行中工作的磁盘的剩余空间",
        alert="YanmoDiskNearlyFull",
    ),
    Metric(
        room="stage",
        name="disk_bytes",
        help="Size of the disk that holds the work in progress, without what is kept for root, as df counts",
        zh="存放进行中工作的磁盘的大小，不含为 root 保留的部分，与 df 相同",
        alert="YanmoDiskNearlyFull",
    ),
    Metric(
        name="start_time_seconds",
        help="Unix time at which the stage began",
        zh="阶段开始的 Unix 时间",
    ),
    Metric(
        name="duration_seconds",
        help="Wall time that it took, once the work has ended",
        zh="工作结束后：所用的挂钟时间",
        final=True,
    ),
    Metric(
        name="cpu_seconds",
        help="CPU time of the processes that made it, once the work has ended",
        zh="工作结束后：各进程所用的 CPU 时间",
        final=True,
    ),
    Metric(
        name="energy_joules",
        help="Energy used by the GPUs meanwhile, once the work has ended",
        zh="工作结束后：其间 GPU 所用的能量",
        labels=(Label(name="device", values=("gpu",)),),
        final=True,
    ),
    Metric(
        name="waiting_seconds",
        help="How long it has been waiting for this now; 0 while it does not",
        zh="此刻已为此等待多久；不等待时为 0",
        labels=(_REASON,),
        alert="YanmoWaiting",
    ),
    Metric(
        name="waited_seconds",
        kind="counter",
        help="Time that it waited for this",
        zh="为此等待的总时间",
        labels=(_REASON,),
        lasts=True,
    ),
    Metric(
        room="store",
        name="requests",
        kind="counter",
        help="Requests of this process to the store, tries included; its workers' own are not counted",
        zh="本进程对存储的请求数，含重试；工作进程自己的不计",
        labels=(_KIND,),
        lasts=True,
    ),
    Metric(
        room="store",
        name="retries",
        kind="counter",
        help="Requests to the store that failed and were made again, or given up",
        zh="对存储的请求中失败后重试或放弃的次数",
        labels=(_KIND,),
        lasts=True,
        alert="YanmoStoreErrors",
    ),
)


def declared(stage: str, own: Iterable[Metric]) -> Iterator[tuple[str, Metric]]:
    """Return name on /metrics -> metric, of a stage with these metrics of its own."""
    for metric in (*EVERY_STAGE, *own):
        yield metric.family(stage), metric


THROTTLES = (
    *("gpu_idle", "application_clocks", "software_power_cap", "hardware_slowdown", "sync_boost"),
    *("software_thermal", "hardware_thermal", "power_brake", "display_clocks"),
)
"""Why a GPU's clocks are held back: the bits of nvmlClocksEventReasons in their order."""
GPU = Label(name="gpu", about="GPU of this pod, from 0", zh="本 Pod 的 GPU 编号，从 0 开始")
_THROTTLE = Label(name="reason", values=THROTTLES)

GPU_METRICS: tuple[Metric, ...] = (
    Metric(
        room="gpu",
        name="info",
        help="A GPU of this pod, always 1",
        zh="本 Pod 的一块 GPU，恒为 1",
        labels=(
            GPU,
            Label(name="uuid", about="its UUID, as DCGM has it too", zh="其 UUID，与 DCGM 相同"),
            Label(name="name", about="its model", zh="其型号"),
            Label(name="driver", about="the driver's version", zh="驱动版本"),
        ),
    ),
    Metric(
        room="gpu",
        name="utilization_ratio",
        help="Share of the last second or so in which a kernel ran; says little of how full it was",
        zh="最近约一秒内有核函数运行的时间占比；不说明跑得有多满",
        labels=(GPU,),
        alert="YanmoGpuIdle",
    ),
    Metric(room="gpu", name="memory_used_bytes", help="Memory in use", zh="已用显存", labels=(GPU,)),
    Metric(room="gpu", name="memory_bytes", help="Memory in all", zh="显存总量", labels=(GPU,)),
    Metric(room="gpu", name="power_watts", help="Power drawn now", zh="当前功率", labels=(GPU,)),
    Metric(
        room="gpu",
        name="power_limit_watts",
        help="Power limit that is in force",
        zh="生效的功率上限",
        labels=(GPU,),
    ),
    Metric(
        room="gpu",
        name="energy_joules",
        kind="counter",
        help="Energy used since the driver was loaded",
        zh="自驱动加载以来所用的能量",
        labels=(GPU,),
        lasts=True,
    ),
    Metric(
        room="gpu",
        name="temperature_celsius",
        help="Temperature of the chip",
        zh="芯片温度",
        labels=(GPU,),
        alert="YanmoGpuHot",
    ),
    Metric(
        room="gpu",
        name="throttled",
        help="Whether clocks are held back now, by reason",
        zh="时钟当前是否受限，按原因",
        labels=(GPU, _THROTTLE),
        alert="YanmoGpuThrottled",
    ),
)
