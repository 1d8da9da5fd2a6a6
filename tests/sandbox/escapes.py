"""Programs that attack their sandbox, and the pattern that their end and output must have.

Each is run behind `HEAD`, so that `attempt(function)` prints what the function returns or how it is refused. The pattern is
matched against "ended_by exit stdout": a program that fails for another reason than the one meant does not match.
{port}, {abstract}, {secret} and {pid} are a port, an abstract socket, a file and a process of the machine.
"""

from __future__ import annotations

HEAD = """
import ctypes, mmap, os, resource, signal, socket, subprocess, sys, threading, time
def attempt(function, *arguments):
    try:
        print("did", function(*arguments), flush=True)
    except BaseException as error:
        print("refused", type(error).__name__, getattr(error, "errno", None), flush=True)
def system(name, *arguments):
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)
    return "called"
X86 = os.uname().machine == "x86_64"
def call(x86, arm, *arguments):
    return system("syscall", ctypes.c_long(x86 if X86 else arm), *map(ctypes.c_long, arguments))
def fill(folder, size=10**6):
    number = 0
    while True:
        with open(f"{folder}/{number}", "wb") as file: file.write(bytes(size))
        number += 1
"""

# name: (what must come of it, the program)
PROCESSES = {
    "fork bomb": (r"exit 0 refused BlockingIOError 11", """
def bomb():
    while True:
        if os.fork() == 0: time.sleep(60); os._exit(0)
attempt(bomb)"""),
    "fork bomb that grows": (r"(time|cpu|processes|signal|exit) ",
     "while True:\n    try: os.fork()\n    except OSError: time.sleep(0.01)"),
    "shell fork bomb": (r"(time|exit|processes|cpu) ",
     "os.execv('/bin/bash', ['bash', '-c', ':(){ :|:& };: ; sleep 60'])"),
    "thread bomb": (r"exit 0 refused RuntimeError", """
def bomb():
    while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
attempt(bomb); os._exit(0)"""),
    "daemon": (r"exit 0 left", "if os.fork() == 0: os.setsid(); time.sleep(60)\nelse: print('left')"),
    "double fork": (r"exit 0 left", """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(60)
    os._exit(0)
print('left')"""),
    "grandchild holds the pipes": (r"exit 0 left", """
subprocess.Popen(['/bin/sh', '-c', 'sleep 60 & sleep 60 &'], close_fds=False); print('left')"""),
    "kill all": (r"exit 0 did None\nhere",
     "attempt(os.kill, -1, signal.SIGKILL) if os.fork() else time.sleep(60); print('here')"),
    "kill the first process": (r"exit 0 did None\nhere",
     "attempt(os.kill, 1, signal.SIGKILL); time.sleep(0.1); print('here')"),
    "stop the first process": (r"exit 0 did None\nhere",
     "attempt(os.kill, 1, signal.SIGSTOP); time.sleep(0.1); print('here')"),
    "interrupt oneself by the first process": (r"(exit 1|signal -2) ",
     "[os.kill(1, signal.SIGUSR1) for _ in range(9)]; time.sleep(60)"),
    "kill a process of the machine": (r"exit 0 refused ProcessLookupError 3",
     "attempt(os.kill, {pid}, signal.SIGKILL)"),
    "kill one's group": (r"signal -9 $", "os.killpg(0, signal.SIGKILL)"),
    "stop oneself": (r"time -9 $", "os.kill(os.getpid(), signal.SIGSTOP)"),
    "sleep for ever": (r"time -9 $", "time.sleep(10**6)"),
    "sleep without descriptors": (r"time -9 $", "os.closerange(0, 99); time.sleep(10**6)"),
    "ignore every signal": (r"time -9 ", """
for number in range(1, 32):
    try: signal.signal(number, signal.SIG_IGN)
    except OSError: pass
time.sleep(60)"""),
    "wait for a FIFO": (r"time -9 $", "os.mkfifo('pipe'); open('pipe')"),
    "wait for input that never ends": (r"exit 0 0", "print(len(sys.stdin.read()))"),
    "crash for a core file": (r"signal -11 $", "os.kill(os.getpid(), signal.SIGSEGV)"),
    "see other processes": (r"exit 0 \['1', '2'\]",
     "print(sorted(name for name in os.listdir('/proc') if name.isdigit()))"),
    "lower the limits of the first process": (r"exit 0 here", """
resource.prlimit(1, resource.RLIMIT_NPROC, (0, 0)); resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0)); print('here')"""),
}  # fmt: skip

MEMORY = {
    "memory bomb": (r"exit 0 refused MemoryError", "attempt(bytearray, 10**12)"),
    "memory bomb in small pieces": (r"exit 0 refused MemoryError", """
def bomb():
    parts = []
    while True: parts.append(bytearray(10**6))
attempt(bomb)"""),
    "memory bomb of many processes": (r"memory -9 ", """
for _ in range(12): os.fork() or [bytearray(os.urandom(1) * (4 * 10**7)), time.sleep(60)]
time.sleep(60)"""),
    "shared memory bomb": (r"memory -9 |exit 0 refused (OSError 12|MemoryError)", """
def bomb():
    parts = []
    while True:
        parts.append(mmap.mmap(-1, 10**7))
        parts[-1][:] = bytes(10**7)
attempt(bomb)"""),
    "memory of no file": (r"exit 0 refused OSError 38", "attempt(os.memfd_create, 'x')"),
    "secret memory": (r"exit 0 refused OSError 38", "attempt(call, 447, 447, 0)"),
    "System V memory": (r"exit 0 refused OSError 38", "attempt(system, 'shmget', 1234, 4096, 0o1666)"),
    "System V semaphores": (r"exit 0 refused OSError 38", "attempt(system, 'semget', 0, 32000, 0o1600)"),
    "System V messages": (r"exit 0 refused OSError 38", "attempt(system, 'msgget', 0, 0o1600)"),
    "POSIX messages": (r"exit 0 refused OSError 38", "attempt(call, 240, 180, 0, 0, 0, 0)"),
    "shared memory that is unmapped": (r"exit 0 refused OSError 12", "attempt(mmap.mmap, -1, 10**6)"),
    "shared memory of /dev/zero": (r"exit 0 refused OSError 19",
     "attempt(mmap.mmap, os.open('/dev/zero', os.O_RDWR), 10**6)"),
    "pages given to a pipe": (r"exit 0 refused OSError 38", "attempt(call, 278, 75, 0, 0, 0, 0)"),
    "asynchronous requests": (r"exit 0 refused OSError 38", "attempt(call, 206, 0, 10**4, 0)"),
    "larger socket buffers": (r"exit 0 True", """
one = socket.socket(); before = one.getsockopt(1, 7), one.getsockopt(1, 8)
for option in (7, 8, 32, 33): one.setsockopt(1, option, 2**24)
print(before == (one.getsockopt(1, 7), one.getsockopt(1, 8)))"""),
    "socket buffers": (r"memory -9 ", """
kept = []
for _ in range(12):
    if os.fork() == 0: break
while True:
    try: pair = socket.socketpair()
    except OSError: time.sleep(0.1); continue
    kept.append(pair)
    for one in pair:
        one.setblocking(False)
        try:
            while True: one.send(bytes(65536))
        except BlockingIOError: pass"""),
    "TCP buffers": (r"memory -9 ", """
kept, server = [], socket.create_server(('127.0.0.1', 0))
while True:
    kept.append((socket.create_connection(server.getsockname()), server.accept()))
    kept[-1][0].setblocking(False)
    try:
        while True: kept[-1][0].send(bytes(65536))
    except BlockingIOError: pass"""),
    "stack bomb": (r"(exit 1|signal -(11|6)|memory -9|time -9|cpu -24) ",
     "sys.setrecursionlimit(10**8)\ndef deep(x): return deep([x])\ndeep(0)"),
    "raise a limit": (r"exit 0 refused (ValueError|PermissionError)",
     "attempt(resource.setrlimit, resource.RLIMIT_AS, (-1, -1))"),
    "raise the limit of files": (r"exit 0 refused (ValueError|PermissionError)",
     "attempt(resource.setrlimit, resource.RLIMIT_NOFILE, (9**6, 9**6))"),
    "open files for ever": (r"exit 0 refused OSError 24",
     "kept = []\nattempt(lambda: [kept.append(open('/dev/null')) for _ in range(10**5)])"),
    "burn the processor": (r"(cpu -24|time -9) $", "while True: pass"),
    "burn the processor and ignore it": (r"(signal|time) -9 $",
     "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"),
    "fill the folder": (r"exit 0 refused OSError 28", "attempt(fill, '.')"),
    "fill /tmp": (r"exit 0 refused OSError 28", "attempt(fill, '/tmp')"),
    "fill /dev/shm": (r"exit 0 refused OSError 28", "attempt(fill, '/dev/shm')"),
    "use up inodes": (r"exit 0 refused OSError 28", "attempt(fill, '.', 0)"),
    "use up inodes by links": (r"exit 0 refused OSError 28",
     "attempt(lambda: [os.symlink('x', f'{number}') for number in range(10**5)])"),
    "deep folders": (r"exit 0 refused (OSError 28|OSError 36|FileNotFoundError)", """
def dig():
    while True: os.mkdir('d' * 200); os.chdir('d' * 200)
attempt(dig)"""),
    "huge file": (r"exit 0 refused OSError 27", "attempt(lambda: open('large', 'wb').write(bytes(10**8)))"),
    "sparse file": (r"exit 0 refused OSError 27",
     "attempt(os.truncate, os.open('large', os.O_CREAT | os.O_RDWR), 10**12)"),
    "endless output": (r"output -9 ", "while True: os.write(1, b'x' * 65536)"),
    "endless errors": (r"output -9 $", "while True: os.write(2, b'x' * 65536)"),
    "endless result": (r"output -9 $", "while True: os.write(3, b'x' * 65536)"),
}  # fmt: skip

FILES = {
    "read passwords": (r"exit 0 refused FileNotFoundError 2", "attempt(open, '/etc/shadow')"),
    "read a secret": (r"exit 0 refused FileNotFoundError 2", "attempt(open, '{secret}')"),
    "read a secret by a symbolic link": (r"exit 0 refused FileNotFoundError 2",
     "os.symlink('{secret}', 'link'); attempt(open, 'link')"),
    "read a secret by a relative path": (r"exit 0 refused FileNotFoundError 2",
     "attempt(open, '../' * 40 + '{secret}'[1:])"),
    "read a secret by the first process": (r"exit 0 refused PermissionError 13",
     "attempt(open, '/proc/1/root{secret}')"),
    "read the first process's environment": (r"exit 0 refused PermissionError 13", "attempt(open, '/proc/1/environ')"),
    "list the first process's descriptors": (r"exit 0 refused PermissionError 13", "attempt(os.listdir, '/proc/1/fd')"),
    "read the first process's memory": (r"exit 0 refused PermissionError 13", "attempt(open, '/proc/1/mem', 'rb')"),
    "write one's memory through /proc": (r"exit 0 refused OSError 30", "attempt(open, '/proc/self/mem', 'r+b')"),
    "find descriptors that were left open": (r"exit 0 \['0', '1', '2', '3', '4'\]",
     "print(os.listdir('/proc/self/fd'))"),
    "write into the system": (r"exit 0 refused OSError 30", "attempt(open, '/usr/bin/mine', 'w')"),
    "write into Python": (r"exit 0 refused (OSError 30|PermissionError 13)", "attempt(open, os.__file__, 'a')"),
    "write into the root": (r"exit 0 refused (OSError 30|PermissionError 13)", "attempt(open, '/mine', 'w')"),
    "write into /dev": (r"exit 0 refused (OSError 30|PermissionError 13)", "attempt(open, '/dev/mine', 'w')"),
    "write where the next program reads": (r"exit 0 refused (OSError 30|PermissionError 13)",
     "attempt(open, '/ingot-inside/mine', 'w')"),
    "hard link to a system file": (r"exit 0 refused OSError 18", "attempt(os.link, '/usr/bin/env', 'link')"),
    "core pattern": (r"exit 0 refused OSError 30", "attempt(open, '/proc/sys/kernel/core_pattern', 'w')"),
    "sysrq": (r"exit 0 refused (OSError 30|PermissionError 13|FileNotFoundError 2)",
     "attempt(open, '/proc/sysrq-trigger', 'w')"),
    "watch the system's files": (r"exit 0 refused OSError 38", "attempt(call, 294, 26, 0)"),
    "watch them by fanotify": (r"exit 0 refused OSError 38", "attempt(call, 300, 262, 0, 0)"),
    "watch them by signals": (r"exit 0 refused PermissionError 1$",
     "import fcntl; attempt(fcntl.fcntl, os.open('/usr', 0), 1026, 1)"),
    "hold a lease on a system file": (r"exit 0 refused PermissionError 1$",
     "import fcntl; attempt(fcntl.fcntl, os.open('/usr/bin/env', 0), 1024, 0)"),
    "lock a system file": (r"exit 0 refused OSError 38",
     "import fcntl; attempt(fcntl.flock, os.open('/usr/bin/env', 0), fcntl.LOCK_EX | fcntl.LOCK_NB)"),
    "device": (r"exit 0 refused PermissionError 1$", "attempt(os.mknod, 'disk', 0o60660, os.makedev(8, 0))"),
    "setuid file": (r"exit 0 refused PermissionError 1$", "attempt(os.chown, '.', 0, 0)"),
}  # fmt: skip

NETWORK = {
    "connect to the machine": (r"exit 0 refused (ConnectionRefusedError 111|OSError 101)",
     "attempt(socket.create_connection, ('127.0.0.1', {port}), 5)"),
    "connect to the world": (r"exit 0 refused OSError 101", "attempt(socket.create_connection, ('1.1.1.1', 80), 5)"),
    "send a datagram": (r"exit 0 refused OSError 101",
     "attempt(socket.socket(type=socket.SOCK_DGRAM).sendto, b'x', ('1.1.1.1', 53))"),
    "ask for a name": (r"exit 0 refused gaierror", "attempt(socket.getaddrinfo, 'example.com', 80)"),
    "connect over IPv6": (r"exit 0 refused OSError",
     "attempt(socket.socket(socket.AF_INET6).connect, ('2606:4700::1111', 80))"),
    "raw socket": (r"exit 0 refused PermissionError 1$", "attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)"),
    "packet socket": (r"exit 0 refused OSError 97", "attempt(socket.socket, socket.AF_PACKET, socket.SOCK_RAW)"),
    "socket to the hypervisor": (r"exit 0 refused OSError 97", "attempt(socket.socket, 40, socket.SOCK_STREAM)"),
    "socket to the kernel": (r"exit 0 refused OSError 97",
     "attempt(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW)"),
    "abstract socket of the machine": (r"exit 0 refused ConnectionRefusedError 111",
     "attempt(socket.socket(socket.AF_UNIX).connect, '\\0{abstract}')"),
    "abstract socket of a neighbour": (r"exit 0 refused ConnectionRefusedError 111",
     "attempt(socket.socket(socket.AF_UNIX).connect, '\\0neighbour')"),
}  # fmt: skip

KERNEL = {
    "trace the first process": (r"exit 0 refused PermissionError 1$", "attempt(call, 101, 117, 16, 1, 0, 0)"),
    "trace a child": (r"exit 0 refused PermissionError 1$", "attempt(call, 101, 117, 0, 0, 0, 0)"),
    "read another's memory": (r"exit 0 refused PermissionError 1$", "attempt(call, 310, 270, 1, 0, 0, 0, 0, 0)"),
    "mount": (r"exit 0 refused PermissionError 1$", "attempt(system, 'mount', b'tmpfs', b'/tmp', b'tmpfs', 0, None)"),
    "unmount": (r"exit 0 refused PermissionError 1$", "attempt(system, 'umount2', b'/proc', 2)"),
    "mount by the new calls": (r"exit 0 refused PermissionError 1$", "attempt(call, 430, 430, 0, 0)"),
    "change the root": (r"exit 0 refused PermissionError 1$", "attempt(os.chroot, '.')"),
    "new user namespace": (r"exit 0 refused PermissionError 1$", "attempt(system, 'unshare', 0x10000000)"),
    "new user namespace by clone": (r"exit 0 refused PermissionError 1$",
     "attempt(call, 56, 220, 0x10000011, 0, 0, 0, 0)"),
    "new user namespace by clone3": (r"exit 0 refused OSError 38", "attempt(call, 435, 435, 0, 0)"),
    "enter a namespace": (r"exit 0 refused (PermissionError 1|OSError 9)$", "attempt(call, 308, 268, 0, 0)"),
    "BPF": (r"exit 0 refused PermissionError 1$", "attempt(call, 321, 280, 0, 0, 0)"),
    "io_uring": (r"exit 0 refused PermissionError 1$", "attempt(call, 425, 425, 8, 0)"),
    "userfaultfd": (r"exit 0 refused PermissionError 1$", "attempt(call, 323, 282, 0)"),
    "performance events": (r"exit 0 refused PermissionError 1$", "attempt(call, 298, 241, 0, 0, 0, 0, 0)"),
    "keys": (r"exit 0 refused PermissionError 1$", "attempt(call, 250, 219, 0, -3, 0)"),
    "kernel log": (r"exit 0 refused PermissionError 1$", "attempt(call, 103, 116, 3, 0, 0)"),
    "open a file by its handle": (r"exit 0 refused PermissionError 1$", "attempt(call, 304, 265, -100, 0, 0)"),
    "second table of system calls": (r"exit 0 refused OSError 38", "attempt(call, 0x40000027, 10**6)"),
    "system calls of 32 bits": (r"signal -(31|11) $", """
code = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)
code[:8] = b"\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3" if X86 else bytes(8)
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())"""),
    "become root": (r"exit 0 refused PermissionError 1$", "attempt(os.setuid, 0)"),
    "change the clock": (r"exit 0 refused PermissionError 1$", "attempt(time.clock_settime, time.CLOCK_REALTIME, 0)"),
    "change the name of the machine": (r"exit 0 refused PermissionError 1$", "attempt(socket.sethostname, 'mine')"),
    "priority": (r"exit 0 refused PermissionError 13?$", "attempt(os.nice, -20)"),
    "real-time priority": (r"exit 0 refused PermissionError 1$",
     "attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50))"),
    "type into a terminal": (r"exit 0 refused (OSError 25|OSError 5|PermissionError 1)", """
import fcntl
attempt(fcntl.ioctl, 0, 0x5412, b'x')"""),
    "setuid program": (r"exit 0 .*\b0000000000000000\b.*\b1\b", """
lines = dict(line.split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
print(lines['CapEff'].strip(), lines['CapBnd'].strip(), lines['NoNewPrivs'].strip())"""),
}  # fmt: skip

ESCAPES = {**PROCESSES, **MEMORY, **FILES, **NETWORK, **KERNEL}
