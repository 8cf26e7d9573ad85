"""What a newcomer pastes: the outputs of one server with two sockets, two disks and a card, by file name."""

LSCPU = """\
Architecture:                       x86_64
CPU op-mode(s):                     32-bit, 64-bit
CPU(s):                             128
On-line CPU(s) list:                0-127
Model name:                         Intel(R) Xeon(R) Gold 6430
Thread(s) per core:                 2
Core(s) per socket:                 32
Socket(s):                          2
Flags:                              fpu avx f16c fma bmi2 avx2 avx512f avx512bw amx_tile amx_int8 amx_bf16
NUMA node(s):                       2
NUMA node0 CPU(s):                  0-31,64-95
NUMA node1 CPU(s):                  32-63,96-127
Vulnerability Spectre v2:           Mitigation; Enhanced IBRS
"""
# 472 GiB in all, 464 GiB = 498.2 GB of them available.
FREE = """\
               total        used        free      shared  buff/cache   available
Mem:           472Gi       4.2Gi       440Gi       2.0Mi        28Gi       464Gi
Swap:             0B          0B          0B
"""
DF = """\
Filesystem                         Size  Used Avail Use% Mounted on
tmpfs                               48G  3.1M   48G   1% /run
efivarfs                           512K  180K  328K  36% /sys/firmware/efi/efivars
/dev/mapper/ubuntu--vg-ubuntu--lv   98G   31G   63G  33% /
tmpfs                              237G     0  237G   0% /dev/shm
/dev/nvme0n1p2                     2.0G  253M  1.6G  14% /boot
/dev/nvme0n1p1                     1.1G  6.2M  1.1G   1% /boot/efi
/dev/nvme1n1                       3.5T  1.1T  2.3T  33% /data
tmpfs                               48G  4.0K   48G   1% /run/user/0
"""
NVIDIA_SMI = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA GeForce RTX 4090        On  |   00000000:31:00.0 Off |                  Off |
|  0%   30C    P8             12W /  450W |       1MiB /  24564MiB |      0%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
"""
TWO_SOCKETS = {
    "lscpu.txt": LSCPU,
    "free.txt": FREE,
    "df.txt": DF,
    "nvidia-smi.txt": NVIDIA_SMI,
}
