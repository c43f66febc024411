//! What the examples' host says of itself, as its programs would.

pub(crate) const CAPABILITIES: &str = "\
<capabilities>
  <host><cpu><arch>x86_64</arch></cpu></host>
  <guest>
    <arch name='x86_64'>
      <machine maxCpus='288'>pc-q35-7.2</machine>
      <machine canonical='pc-q35-7.2' maxCpus='288'>q35</machine>
      <machine maxCpus='255'>pc-i440fx-7.2</machine>
      <machine canonical='pc-i440fx-7.2' maxCpus='255'>pc</machine>
      <machine maxCpus='255' deprecated='yes'>pc-i440fx-1.7</machine>
      <domain type='qemu'/>
      <domain type='kvm'/>
    </arch>
    <arch name='aarch64'>
      <machine maxCpus='512'>virt</machine>
      <domain type='qemu'/>
    </arch>
  </guest>
</capabilities>
";

pub(crate) const DOMCAPABILITIES: &str = "\
<domainCapabilities>
  <domain>kvm</domain>
  <machine>pc-q35-7.2</machine>
  <arch>x86_64</arch>
  <vcpu max='288'/>
  <iothreads supported='yes'/>
  <os supported='yes'>
    <enum name='firmware'/>
    <loader supported='yes'><enum name='secure'><value>no</value></enum></loader>
  </os>
  <cpu>
    <mode name='host-passthrough' supported='yes'/>
    <mode name='maximum' supported='no'/>
    <mode name='host-model' supported='yes'>
      <model fallback='forbid'>Skylake-Client-noTSX-IBRS</model>
      <feature policy='disable' name='mpx'/>
    </mode>
    <mode name='custom' supported='yes'>
      <model usable='yes'>Skylake-Client-noTSX-IBRS</model>
      <model usable='no'>Skylake-Client</model>
      <blockers model='Skylake-Client'><feature name='hle'/><feature name='rtm'/></blockers>
    </mode>
  </cpu>
  <memoryBacking supported='yes'>
    <enum name='sourceType'><value>file</value><value>anonymous</value></enum>
  </memoryBacking>
  <devices>
    <disk supported='yes'>
      <enum name='bus'><value>scsi</value><value>virtio</value><value>sata</value></enum>
    </disk>
    <video supported='yes'>
      <enum name='modelType'><value>vga</value><value>virtio</value><value>none</value></enum>
    </video>
  </devices>
  <features>
    <sev supported='no'/>
    <hyperv supported='yes'><enum name='features'><value>relaxed</value></enum></hyperv>
  </features>
</domainCapabilities>
";

pub(crate) const QMP: &str = "\
{\"return\": {\"enabled\": true, \"present\": true}}
{\"return\": {\"arch\": \"x86_64\"}}
{\"return\": [{\"name\": \"pc-q35-7.2\", \"alias\": \"q35\", \"cpu-max\": 288, \"deprecated\": false}, \
{\"name\": \"pc-i440fx-1.7\", \"cpu-max\": 255, \"deprecated\": true}]}
{\"return\": [{\"name\": \"Skylake-Client\", \"typename\": \"Skylake-Client-x86_64-cpu\", \
\"unavailable-features\": [\"hle\", \"rtm\"]}, {\"name\": \"host\", \"typename\": \
\"host-x86_64-cpu\", \"unavailable-features\": []}]}
{\"return\": [{\"name\": \"virtio-net-pci\"}, {\"name\": \"e1000\"}, {\"name\": \"virtio-blk-pci\"}]}
";
