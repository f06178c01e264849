# The first process of a machine that consists of namespaces and runs systemd with units of its own only.
# Variables: MACHINE_UNITS, the directory of its further units; MACHINE_VISIBLE, directories below /root and /tmp that are
# seen; MACHINE_GROUPS, 2 for version 2 of control groups alone, else what this machine has; MACHINE_BOOT, a file with a
# boot id.
# Prints a line before systemd starts.
set -eu

mount --make-rprivate /
for place in /run /var/lib /mnt; do mount -t tmpfs -o mode=755 machine "$place"; done

# Two machines never have the same boot id. Processes are known by it.
mount --bind "$MACHINE_BOOT" /proc/sys/kernel/random/boot_id

# Programs below /root and /tmp can be run by all users. JVMs name files in /tmp by their pid, which a process of another
# machine may have as well.
mkdir /mnt/root
mkdir -m 1777 /mnt/tmp
for path in $MACHINE_VISIBLE; do
    mkdir -p "/mnt$path"
    mount --rbind "$path" "/mnt$path"
done
for place in /root /tmp; do mount --rbind "/mnt$place" "$place"; done

# /etc is the machine's, with changes that only this one has. Its systemd knows none of the other's units.
mkdir /mnt/etc /mnt/etc-work /mnt/dev
mount -t overlay etc -o lowerdir=/etc,upperdir=/mnt/etc,workdir=/mnt/etc-work /etc
mount -t tmpfs -o mode=755 units /etc/systemd/system
cp "$MACHINE_UNITS"/* /etc/systemd/system/

# Devices: those that every program expects. No console and no disk of the machine.
mount -t tmpfs -o mode=755 devices /mnt/dev
for each in null zero full random urandom tty; do touch "/mnt/dev/$each" && mount --bind "/dev/$each" "/mnt/dev/$each"; done
mkdir /mnt/dev/shm /mnt/dev/pts
mount -t tmpfs shm /mnt/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 pts /mnt/dev/pts
ln -s pts/ptmx /mnt/dev/ptmx
ln -s /proc/self/fd /mnt/dev/fd
mount --rbind /mnt/dev /dev

# Control groups, as this process's namespace shows them.
umount --recursive --lazy /sys/fs/cgroup
if [ "$MACHINE_GROUPS" != 2 ] && [ -e /proc/1/ns/cgroup ] && grep -q '^[1-9]' /proc/self/cgroup; then
    mount -t tmpfs -o mode=755 cgroups /sys/fs/cgroup
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd systemd /sys/fs/cgroup/systemd
    # systemd takes cpu and cpuacct for one hierarchy, and cannot mount that where the kernel has two of them.
    if grep -q '^[0-9]*:cpu:' /proc/self/cgroup; then
        mkdir /sys/fs/cgroup/cpu,cpuacct
        mount -t cgroup -o cpu cpu /sys/fs/cgroup/cpu,cpuacct
    fi
else
    mount -t cgroup2 cgroups /sys/fs/cgroup
fi

ip link set lo up
echo ready
exec >/dev/null 2>&1
container=emberkeep-test SYSTEMD_UNIT_PATH=/etc/systemd/system SYSTEMD_LOG_TARGET=null \
    exec /lib/systemd/systemd --system --unit=machine.target
