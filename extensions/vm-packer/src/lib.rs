//! ext.vm-packer: virtual machines from Packer images under QEMU
