//! What goes wrong with a trial in a real cluster: each is a clear outcome, and nothing of it
//! stays. The user has the printed role alone.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use record::Outcome;
use rustix::process::Signal;
use serde_json::{Value, json};
use suite::until;

use crate::kubevirt_trials::left;
use crate::lab::{CommandOutput, events, said};
use crate::local_clusters::{ACCOUNT, Account, RBAC, User, processes, programs, send, up};
use crate::running::results;

/// A workload that takes as long as it sleeps.
const STUDY: &str = "vmlab = 1\ntitle = \"Faults\"\nbaseline = \"plain\"\nseed = 1\n\n\
    [budget]\nblocks = 1\nuntil = \"budget\"\nboot_limit_s = 240\n\n\
    [vm]\nmemory_mib = 256\nvcpus = 1\n\n[[variant]]\nname = \"plain\"\n\n\
    [[workload]]\nrun = \"cyclictest\"\nparams = { interval_us = 1000, loops = 20000 }\n\
    invocations = 1\n";
const NAMESPACE: &str = "lab";
/// How long a server is away that comes back.
const SHORT: Duration = Duration::from_secs(8);

/// A cluster in which trials go wrong.
struct FaultyCluster<'a> {
    user: &'a User,
    server: String,
    account: Account<'a>,
    folder: tempfile::TempDir,
    runs: Cell<u32>,
}

/// A run that goes on.
struct FaultyRun {
    vmlab: Child,
    results: PathBuf,
}

impl FaultyRun {
    /// The outcome of its last trial, which failed; and what was said.
    fn fails(self) -> (String, CommandOutput) {
        let ended = CommandOutput::of(self.vmlab.wait_with_output().expect("vmlab"));
        let all = results(&events(&self.results));
        let outcome = all.last().map(|result| &result.outcome);
        let Some(Outcome::Failed(failure)) = outcome else { panic!("{outcome:#?} {ended:#?}") };
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        (failure.to_string(), ended)
    }
}

impl FaultyCluster<'_> {
    fn words<'w>(&self, study: &'w str, kubeconfig: &'w Path) -> Vec<&'w str> {
        let kubeconfig = kubeconfig.to_str().expect("a path");
        vec!["run", study, "--on", "kubevirt", "--kubeconfig", kubeconfig]
    }

    fn study(&self) -> String {
        let study = self.folder.path().join("study.toml");
        fs::write(&study, STUDY).expect("a file");
        study.to_str().expect("a path").to_owned()
    }

    fn start(&self, kubeconfig: &Path, more: &[&str]) -> FaultyRun {
        let number = self.runs.get();
        self.runs.set(number + 1);
        let results = self.folder.path().join(format!("results-{number}"));
        let study = self.study();
        let mut command = self.user.vmlab(&self.words(&study, kubeconfig));
        command.arg("--out").arg(&results).arg("--verbose").args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        FaultyRun { vmlab: command.spawn().expect("vmlab"), results }
    }

    /// A run whose instance is running.
    fn running(&self, kubeconfig: &Path) -> (FaultyRun, Value) {
        self.running_of(kubeconfig, &[])
    }

    fn running_of(&self, kubeconfig: &Path, more: &[&str]) -> (FaultyRun, Value) {
        let mut run = self.start(kubeconfig, more);
        let instance = until("an instance runs", || {
            let list = self.ask(&self.instances());
            let instance = list["items"][0].clone();
            if run.vmlab.try_wait().expect("vmlab").is_some() {
                return Some(None);
            }
            (instance["status"]["phase"] == "Running").then_some(Some(instance))
        });
        match instance {
            Some(instance) => (run, instance),
            None => panic!("{:#?}", run.vmlab.wait_with_output()),
        }
    }

    /// What is said where no run begins.
    fn refused(&self, kubeconfig: &Path) -> CommandOutput {
        let study = self.study();
        let results = self.folder.path().join("refused");
        let mut command = self.user.vmlab(&self.words(&study, kubeconfig));
        let said = said(command.arg("--out").arg(&results));
        assert!(!results.exists(), "{said:#?}");
        said
    }

    fn instances(&self) -> String {
        format!("/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachineinstances")
    }

    fn core(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{NAMESPACE}/{resource}")
    }

    fn ask(&self, path: &str) -> Value {
        self.user.ask(&self.server, path, None)
    }

    fn create(&self, path: &str, object: &Value) {
        self.user.ask(&self.server, path, Some(object));
    }

    fn delete(&self, path: &str) {
        self.user.request(&self.server, "DELETE", path, None);
    }

    /// Nothing of a trial is in the namespace, nor on its way out.
    fn is_empty(&self) {
        assert_eq!(left(self.user, &self.server, NAMESPACE), Vec::<String>::new());
    }

    /// Sends a signal to the API server.
    fn api_server(&self, signal: Signal) {
        let servers = processes(&self.user.folder(), "kube-apiserver");
        let [server] = servers[..] else { panic!("{servers:?}") };
        send(server, signal);
    }

    fn an_image_that_can_not_be_pulled(&self, kubeconfig: &Path) {
        let run = self.start(kubeconfig, &["--kubevirt-image", "vmlab.invalid/none:1"]);
        let (why, said) = run.fails();
        assert!(why.contains("cluster failed") && why.contains("ImagePullBackOff"), "{why}");
        assert!(why.contains("vmlab.invalid/none:1"), "{why} {said:#?}");
        self.is_empty();
    }

    fn a_quota(&self, kubeconfig: &Path) {
        let quota = |resource: &str| {
            json!({
                "metadata": { "name": "none" }, "spec": { "hard": { resource: "0" } },
            })
        };
        let quotas = self.core("resourcequotas");
        let counts = |resource: &str| {
            until("the quota counts", || {
                let quota = self.ask(&format!("{quotas}/none"));
                quota["status"]["hard"][resource].is_string().then_some(())
            });
        };
        // Of instances: the server's dry run tells it already.
        let instances = "count/virtualmachineinstances.kubevirt.io";
        self.create(&quotas, &quota(instances));
        counts(instances);
        self.refused(kubeconfig).is_error(&["plain: ", "A quota of namespace \"lab\" is reached"]);
        self.delete(&format!("{quotas}/none"));
        // Of pods: KubeVirt is told, and says so in the instance.
        self.create(&quotas, &quota("pods"));
        counts("pods");
        let (why, _) = self.start(kubeconfig, &[]).fails();
        assert!(why.contains("cluster failed") && why.contains("exceeded quota: none"), "{why}");
        self.delete(&format!("{quotas}/none"));
        self.is_empty();
    }

    fn an_instance_that_somebody_deletes(&self, kubeconfig: &Path) {
        let (run, instance) = self.running(kubeconfig);
        let name = instance["metadata"]["name"].as_str().expect("a name");
        self.delete(&format!("{}/{name}", self.instances()));
        let (why, _) = run.fails();
        assert!(why.contains("somebody else deleted the instance"), "{why}");
        self.is_empty();
    }

    fn an_eviction(&self, kubeconfig: &Path) {
        let (run, _) = self.running(kubeconfig);
        let pods = self.ask(&self.core("pods"));
        let pod = pods["items"][0]["metadata"]["name"].as_str().expect("a pod");
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod },
        });
        self.create(&self.core(&format!("pods/{pod}/eviction")), &eviction);
        let (why, _) = run.fails();
        assert!(why.contains("cluster failed") && why.contains("evict"), "{why}");
        self.is_empty();
    }

    fn a_verb_that_is_forbidden(&self, kubeconfig: &Path) {
        let path = format!("{RBAC}/clusterroles/{ACCOUNT}");
        let whole = self.ask(&path)["rules"].as_array().expect("rules").clone();
        let is_exec = |rule: &&Value| rule["resources"][0] == "pods/exec";
        let less: Vec<&Value> = whole.iter().filter(|rule| !is_exec(rule)).collect();
        let set = |rules: &Value| {
            let role = json!({ "rules": rules });
            self.user.request(&self.server, "PATCH", &path, Some(&role));
        };
        // In the middle of a trial.
        let (run, _) = self.running(kubeconfig);
        set(&json!(less));
        let (why, _) = run.fails();
        assert!(why.contains("May not create pods/exec"), "{why}");
        assert!(why.contains("`vmlab k8s rbac --run` prints the role"), "{why}");
        self.is_empty();
        // And before one.
        let parts =
            ["May not create pods/exec, get pods/exec in namespace \"lab\"", "k8s rbac --run"];
        self.refused(kubeconfig).is_error(&parts);
        set(&json!(whole));
        self.is_allowed(kubeconfig);
    }

    /// The server learns of a role a moment later, and of a node.
    fn is_allowed(&self, kubeconfig: &Path) {
        until("a run may begin", || {
            let study = self.study();
            let mut words = self.words(&study, kubeconfig);
            words.push("--dry-run");
            let told = said(&mut self.user.vmlab(&words));
            (told.code == Some(0)).then_some(())
        });
    }

    fn a_server_that_is_away_for_a_while(&self, kubeconfig: &Path) {
        let (run, _) = self.running(kubeconfig);
        self.is_away();
        until("the guest's agent is there", || {
            let list = self.ask(&self.instances());
            let conditions = list["items"][0]["status"]["conditions"].as_array().cloned();
            let is = |one: &Value| one["type"] == "AgentConnected" && one["status"] == "True";
            conditions.is_some_and(|all| all.iter().any(is)).then_some(())
        });
        self.is_away();
        let ended = CommandOutput::of(run.vmlab.wait_with_output().expect("vmlab"));
        ended.has_code(0);
        let all = results(&events(&run.results));
        let [result] = &all[..] else { panic!("{all:#?} {ended:#?}") };
        assert!(result.outcome.is_completed(), "{result:#?}");
        self.is_empty();
    }

    /// Stops the API server for a while.
    fn is_away(&self) {
        self.api_server(Signal::STOP);
        let end = Instant::now() + SHORT;
        until("it was away long enough", || (Instant::now() >= end).then_some(()));
        self.api_server(Signal::CONT);
    }

    fn a_server_that_stays_away(&self, kubeconfig: &Path) {
        let (run, _) = self.running(kubeconfig);
        self.api_server(Signal::STOP);
        let (why, said) = run.fails();
        assert!(why.contains("cluster failed") && why.contains("did not answer"), "{why}");
        self.api_server(Signal::CONT);
        assert!(format!("{said:?}").contains("vmlab clean"), "{said:#?}");
        self.clean();
        // KubeVirt puts no VMs on a node whose handler was not heard of for so long.
        self.is_allowed(kubeconfig);
    }

    /// What a run could not delete.
    fn clean(&self) {
        let cleaned = self.user.say(&["clean"]);
        cleaned.has_code(0);
        let deleted = format!("deleted VirtualMachineInstance {NAMESPACE}/vmlab-");
        assert!(cleaned.stdout.contains(&deleted), "{cleaned:#?}");
        self.is_empty();
    }

    /// A token is as expired when the object is gone that it is bound to. A connection that
    /// is there stays, so that it may be only the next trial that learns of it.
    fn a_token_that_expires(&self) {
        let secret = json!({ "metadata": { "name": "session" } });
        self.create(&self.core("secrets"), &secret);
        let session = json!({ "apiVersion": "v1", "kind": "Secret", "name": "session" });
        let kubeconfig = self.account.kubeconfig(Some(session));
        let (run, _) = self.running_of(&kubeconfig, &["--blocks", "2"]);
        self.delete(&self.core("secrets/session"));
        let (why, _) = run.fails();
        assert!(why.contains("does not accept the credentials any more"), "{why}");
        let parts = ["does not accept the credentials", "a token may have expired, log in again"];
        self.refused(&kubeconfig).is_error(&parts);
        // Logged in again, as it is said.
        self.account.kubeconfig(None);
        self.clean();
    }

    fn a_namespace_that_is_deleted(&self, kubeconfig: &Path) {
        let (run, _) = self.running(kubeconfig);
        let path = format!("/api/v1/namespaces/{NAMESPACE}");
        self.delete(&path);
        let (why, _) = run.fails();
        assert!(why.contains("its namespace is being deleted"), "{why}");
        until("the namespace is gone", || {
            self.user.try_request(&self.server, "GET", &path, None).is_err().then_some(())
        });
        let parts = ["no namespace \"lab\"", "kubevirt:CONTEXT/NAMESPACE"];
        let admin = self.user.folder().join("kubeconfig");
        let study = self.study();
        let mut words = self.words(&study, &admin);
        words[3] = "kubevirt:/lab";
        said(&mut self.user.vmlab(&words)).is_error(&parts);
    }
}

#[test]
fn whatever_becomes_of_a_trial_s_cluster_is_an_outcome_and_nothing_stays() {
    let Some((_turn, programs)) = programs(&["--kubevirt"]) else { return };
    let user = User::new();
    let Some(status) = up(&user, &programs, &["--kubevirt"]) else { return };
    let server = status["server"].as_str().expect("an address").to_owned();
    let account = user.account(&server, NAMESPACE, &["--run"]);
    let kubeconfig = account.kubeconfig(None);
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = FaultyCluster { user: &user, server, account, folder, runs: Cell::new(0) };
    cluster.is_allowed(&kubeconfig);
    cluster.a_token_that_expires();
    cluster.a_server_that_stays_away(&kubeconfig);
    cluster.an_instance_that_somebody_deletes(&kubeconfig);
    cluster.a_server_that_is_away_for_a_while(&kubeconfig);
    cluster.an_image_that_can_not_be_pulled(&kubeconfig);
    cluster.a_quota(&kubeconfig);
    cluster.an_eviction(&kubeconfig);
    cluster.a_verb_that_is_forbidden(&kubeconfig);
    cluster.a_namespace_that_is_deleted(&cluster.account.kubeconfig(None));
    user.say(&["cluster", "down", "lab"]).has_code(0);
}
