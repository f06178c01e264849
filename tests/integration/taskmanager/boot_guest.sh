#!/busybox sh
# The first process of a virtual machine: arranges its files, and becomes the command that it was made for.
# Its root directory is that of the machine around it, read-only, with an empty disk at /tmp. `command` and `checkout`
# are files beside this one.
b=/busybox
checkout=$($b cat /checkout)
$b mkdir -p /proc /sys /dev /around /seen /disk
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs devices /dev
for each in $($b cat /drivers/order); do $b insmod "/drivers/$each"; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro around /around
$b mount --bind /around /seen
$b mount -t ext4 /dev/vda /disk
$b mkdir -p /disk/tmp /disk/upper /disk/work
$b chmod 1777 /disk/tmp

# The checkout is seen where it is, and can be written to.
$b mount --bind /disk/tmp /seen/tmp
$b mkdir -p "/seen$checkout" 2>/dev/null
$b mount -t overlay overlay -o "lowerdir=/around$checkout,upperdir=/disk/upper,workdir=/disk/work" "/seen$checkout"
for each in proc sys dev; do $b mount --rbind "/$each" "/seen/$each"; done
$b mkdir -p /seen/dev/shm
$b mount -t tmpfs shm /seen/dev/shm
$b mount -t tmpfs run /seen/run
$b mount -t cgroup2 groups /seen/sys/fs/cgroup
$b ip link set lo up

# As in a session: a group of this process's own, which has the controllers.
groups=/seen/sys/fs/cgroup
echo "+cpu +memory +pids" >$groups/cgroup.subtree_control
$b mkdir -p $groups/session/own
echo "+cpu +memory +pids" >$groups/session/cgroup.subtree_control
echo $$ >$groups/session/own/cgroup.procs
$b chroot /seen /bin/sh -c "cd '$checkout' && $($b cat /command)" </dev/null
echo "guest: exit code $?"
$b poweroff -f
