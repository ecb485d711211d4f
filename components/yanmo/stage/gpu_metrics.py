"""What a stage that may use a GPU serves of it, where no DCGM exporter does.

Standard library only, as a stage's declaration is read by the pipeline compiler.
"""

from __future__ import annotations

from yanmo.stage.metric import Label, Metric

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
