# The first process of a host that consists of namespaces: arranges its files, then collects ended processes.
# Variables: HOST_NAME; HOST_DISK, a directory outside; HOST_SHARED, one as well or a block device; HOST_BOOT, a file;
# HOST_VISIBLE, directories
# below /tmp and /root that stay visible. When this process ends, the kernel ends all processes of the host.
set -eu

hostname "$HOST_NAME"
mount --make-rprivate /
mount -t tmpfs -o mode=755 mounts /mnt
mkdir /mnt/local /mnt/shared /mnt/etc /mnt/etc-work
mount --bind "$HOST_DISK" /mnt/local
if [ -b "$HOST_SHARED" ]; then mount "$HOST_SHARED" /mnt/shared; else mount --bind "$HOST_SHARED" /mnt/shared; fi

# /etc is the machine's, with changes that only this host has.
mount -t overlay etc -o lowerdir=/etc,upperdir=/mnt/etc,workdir=/mnt/etc-work /etc
echo "$HOST_NAME" >/etc/hostname
printf '127.0.0.1 localhost\n::1 localhost\n' >/etc/hosts
echo "hosts: files" >/etc/nsswitch.conf
: >/etc/resolv.conf

# Two machines never have the same boot id. Processes are known by it.
mount --bind "$HOST_BOOT" /proc/sys/kernel/random/boot_id

# Programs name shared memory by their pid, which a process of another host may have as well.
mount -t tmpfs -o mode=1777 shm /dev/shm

mkdir -p /mnt/local/tmp /mnt/local/root
chmod 1777 /mnt/local/tmp
for path in $HOST_VISIBLE; do
    mkdir -p "/mnt/local$path"
    mount --rbind "$path" "/mnt/local$path"
done
mount --rbind /mnt/local/tmp /tmp
mount --rbind /mnt/local/root /root
cd /mnt/local

echo ready
exec >/dev/null
# A shell collects every child that has ended, also those that it has inherited.
while :; do
    sleep 3600 &
    wait $!
done
