package dev.loupe.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.Checkout;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.cuda.driver.CudaDriver;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Commands that can't be meant: exit code 2 and one sentence; and the help that prevents them. */
class UsageTest {
  /** Arguments, a bar between any two; then words of the message. */
  @ParameterizedTest
  @ValueSource(
      strings = {
        "genrate => there is no command genrate; generate",
        "weights => no command given; inspect; convert; verify; pull; make-random",
        "weights|shrink => there is no command shrink; inspect",
        "generate|x|--bogus => no option --bogus; loupe generate --help",
        "generate|x|--temprature|1 => no option --temprature; --temperature",
        "generate|- a => no option - a; put -- before",
        "generate|a|b => \"b\"; quotes",
        "generate|x|-n => -n",
        "generate|x|-n|abc => -n; 'abc'; whole number",
        "generate|x|-n|1.5 => -n; '1.5'; whole number",
        "generate|x|-n|99999999999 => -n; 2147483647",
        "generate|x|-n|-1 => -1 tokens",
        "generate|x|--seed|a => --seed; 'a'; whole number",
        "generate|x|--temperature|nan => --temperature; 'nan'; number",
        "generate|x|--temperature|NaN => temperature NaN",
        "generate|x|--temperature|-1 => temperature -1.0",
        "generate|x|--temperature|Infinity => temperature Infinity",
        "generate|x|--top-k|-1 => top-k -1",
        "generate|x|--top-p|2 => top-p 2.0; between 0 and 1",
        "generate|x|--top-p|-0.1 => top-p -0.1",
        "generate|x|--min-p|1.5 => min-p 1.5",
        "generate|x|--repetition-penalty|0 => repetition penalty 0.0",
        "generate|x|--samples|0 => 0 samples",
        "generate|x|--samples|-2 => -2 samples",
        "generate|x|--samples|1000000 => 1000000 samples",
        "generate|x|--stop| => stop string is empty",
        "generate|x|--logprobs|3 => --logprobs; --json",
        "generate|x|--logprobs|-1|--json => --logprobs -1",
        "generate|x|--threads|-1 => -1 threads",
        "generate|x|--threads|100000 => 100000 threads",
        "generate|x|--backend|tpu => --backend; 'tpu'; auto, cpu or cuda",
        "generate|x|--dtype|f8 => --dtype; 'f8'; f32, f16, bf16 or int8",
        "generate|x|--gemm|mkl => --gemm; 'mkl'; auto, own or cublas",
        "generate|x|--device|-1 => GPU -1: they are numbered from 0",
        "generate|x|--overflow|wrap => --overflow; 'wrap'; error or slide",
        "generate|x|-m| => model's name is empty",
        "generate|x|--ids|1 => one of TEXT, --file and --ids",
        "generate|x|--file|y => one of TEXT, --file and --ids",
        "generate|--ids|1|--file|y => one of TEXT, --file and --ids",
        "generate|--ids|1;2 => --ids; '1;2'",
        "generate|--ids|-1 => token id -1; 0..1023",
        "generate|--ids|1024 => token id 1024; 0..1023",
        "generate|--ids| => --ids",
        "generate|x|-n|257 => 1 prompt tokens; room for 256; context of 256; --overflow slide",
        "generate|x|--layers|0 => --layers; --attention; .npz",
        "generate|x|--heads|0 => --heads; --attention",
        "generate|x|--scores => --scores; --attention",
        "generate|x|--attention-dtype|f16 => --attention-dtype; .npz",
        "generate|x|--attention-dtype|f8 => --attention-dtype; 'f8'; f32 or f16",
        "generate|x|--attention|a.npz|--attention-dtype|bf16 => bf16; f32 or f16",
        "generate|x|--stats|s.png => s.png; .npz .json .csv",
        "generate|x|--value-norms => --value-norms; --stats FILE; .npz .json .csv",
        "attention|x|--rollout => --rollout; --stats FILE; .npz .json",
        "attention|x|--stats|s.csv|--rollout => --rollout; .npz .json",
        "attention|x|--stats|s.npz|--rollout|--heads|1 => --rollout; leave out --layers and --heads",
        "generate|x|--linear-colour => --linear-colour; .png; .html",
        "attention|x|--top|0 => --top 0",
        "attention|x|--top|3|--json => --top; --json",
        "attention|x|--layers|6 => layer 6 does not exist; 0..5",
        "attention|x|--layers|0-6 => layer 6 does not exist; 0..5",
        "attention|x|--heads|3 => head 3 does not exist; 0..2",
        "attention|x|--heads|1- => --heads 1-; 0,3-5",
        "attention|x|--layers|2-1 => --layers 2-1; 0,3-5",
        "attention|x|--layers|0-999999999 => --layers; 0,3-5",
        "attention|x|--layers| => --layers; 0,3-5",
        "attention|x|--layers|-1 => --layers -1; 0,3-5",
        "attention|x|--scores => --scores; --attention",
        "attention|x|--samples|2 => no option --samples",
        "weights|make-random => DIR",
        "weights|make-random|d|--size|huge => huge; gpt2-medium",
        "weights|convert|in => OUT",
        "weights|pull => NAME",
        "weights|pull|../gpt2 => \"../gpt2\"; openai-community/gpt2",
        "weights|pull|gpt2@a b => \"a b\"; revision",
        "weights|pull|gpt2|d|--hub|nowhere => \"nowhere\"; address",
        "weights|convert|in|out|--format|onnx => \"onnx\"; gguf and safetensors",
        "weights|convert|in|out.bin => out.bin says no format; --format",
        "weights|convert|in|out.gguf|--dtype|q4_0 => \"q4_0\"; f32, f16, q8_0",
        "weights|convert|in|out|--dtype|q4_0 => \"q4_0\"; f32, f16, bf16",
        "weights|convert|in|out|--dtype|int8 => int8 is for --format gguf",
        "weights|verify|in => B",
        "weights|verify|in|out|--tolerance|-1 => --tolerance is -1.0",
        "weights|verify|in|out|--tolerance|NaN => --tolerance is NaN",
        "bench => no command given; decode; prefill",
        "bench|decode|--attention|two => --attention; 'two'; none, one or all",
        "bench|decode|--runs|0 => 0 runs",
        "bench|decode|-n|0 => 0 tokens to write",
        "bench|decode|-n|192|--backend|cpu => 64 prompt tokens and 193 to write; context of 256",
        "bench|prefill|--prompt-tokens|0 => 0 prompt tokens",
        "bench|prefill|--prompt-tokens|257|--backend|cpu => 257 prompt tokens; context of 256",
        "bench|prefill|-n|5 => no option -n",
        "serve|--port|65536 => port 65536; 0 to 65535",
        "serve|--port|http => --port; 'http'; whole number",
        "serve|--host| => host is empty",
        "serve|--host|no.such.host.invalid|--port|0 => no host no.such.host.invalid",
        "serve|--queue|-1 => queue of -1",
        "serve|--timeout|0 => timeout of 0 s",
        "serve|x => \"x\"",
        "corpus => no command given; prepare; run; report",
        "corpus|prepare|-o|out => INPUT",
        "corpus|prepare|in => --out",
        "corpus|prepare|in|-o|out|--format|pdf => --format; 'pdf'; text, lines, json or parquet",
        "corpus|prepare|in|-o|out|--long|cut => --long; 'cut'; windows or refuse",
        "corpus|prepare|in|-o|out|--shards|-1 => -1 shards in 0 waves",
        "corpus|prepare|in|-o|out|--shards|64|--waves|65 => 64 shards in 65 waves",
        "corpus|prepare|in|-o|out|-m|hdfs://a/b|--ship => --ship; on this machine",
        "corpus|run|in|-o|out|--edges|9 => 9 edges: not 0 to 8",
        "corpus|run|in|-o|out|--no-statistics|--value-norms => statistics of heads, which are off",
        "corpus|run|in|-o|out|--no-statistics|--no-log-prob => nothing to do",
        "corpus|run|in|-o|out|--batch-tokens|0 => 0 tokens a pass",
        "corpus|report|results => --html FILE; --json FILE",
        "doctor|x => \"x\"",
      })
  void refuses(String line) {
    String[] sides = line.split(" => ", -1);
    Ran.loupe((Object[]) sides[0].split("\\|", -1))
        .refused(ExitCode.BAD_USAGE, (Object[]) sides[1].split("; ", -1));
  }

  @Test
  void refusesToRunWithoutACommand() {
    Ran.loupe()
        .refused(
            ExitCode.BAD_USAGE,
            "no command",
            "generate, attention, heads, lens, compare, trace, serve, corpus, weights, bench, doctor, completion");
  }

  @Test
  void saysWhatIsMissingWhereSparkIsNot() {
    Ran.loupe("corpus", "prepare", "in", "-o", "out")
        .refused(ExitCode.NO_BACKEND, "nothing that runs corpora is here", "scripts/loupe");
  }

  @Test
  void refusesASelectionThatTheModelLacksAndLeavesNoFile(@TempDir Path folder) throws IOException {
    Ran.loupe("generate", "x", "--layers", "5-6", "--attention", folder.resolve("a.npz"))
        .refused(ExitCode.BAD_USAGE, "layer 6 does not exist", "0..5");
    assertEquals(List.of(), Ran.names(folder));
  }

  @Test
  void refusesAPromptLongerThanTheContext() {
    Ran.reading("a b ".repeat(300), "generate", "-n", 1)
        .refused(
            ExitCode.BAD_USAGE, "tokens and the model reads 256", "shorten", "--overflow slide");
    Ran.reading("a b ".repeat(300), "attention").refused(ExitCode.BAD_USAGE, "reads 256");
  }

  @Test
  void refusesAnAskedForGpu() {
    assumeTrue(CudaDriver.find().cards().isEmpty(), "there is one");
    Ran.loupe("generate", "x", "--backend", "cuda")
        .refused(ExitCode.NO_BACKEND, "no GPU can be used", "NVIDIA driver", "--backend cpu");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "generate",
        "attention",
        "weights",
        "weights inspect",
        "weights convert",
        "weights verify",
        "weights pull",
        "weights make-random",
        "lens",
        "compare",
        "trace",
        "serve",
        "bench",
        "bench attention",
        "bench decode-attention",
        "bench decode",
        "bench prefill",
        "doctor",
        "completion"
      })
  void helps(String command) {
    String[] words = (command + " --help").strip().split(" ", -1);
    Ran ran = Ran.loupe((Object[]) words).well();
    assertEquals("", ran.err());
    assertTrue(ran.out().startsWith(("Usage: loupe " + command).strip()), ran.out());
    assertTrue(ran.out().endsWith("\n"));
    for (String line : ran.out().lines().toList()) {
      assertTrue(line.length() <= 80, line);
      assertFalse(line.contains("${") || line.contains("null"), line);
      assertFalse(line.endsWith(" ."), line);
    }
    words[words.length - 1] = "-h";
    assertEquals(ran.out(), Ran.loupe((Object[]) words).out());
  }

  @Test
  void theHelpNamesOptionsAndDefaults() {
    String help = Ran.loupe("generate", "--help").out();
    for (String option : List.of("--file", "--ids", "--samples", "--seed", "--attention", "-m")) {
      long lines =
          help.lines().filter(line -> line.matches(" +(-., )?" + option + "\\b.*")).count();
      assertTrue(lines >= 1, option + " in\n" + help);
    }
    assertTrue(help.contains("(default: 0.8)") && help.contains("(default: 40)"), help);
  }

  @Test
  void saysItsVersion() {
    Ran ran = Ran.loupe("--version").well();
    assertTrue(ran.out().matches("loupe \\S.*, Java 2\\d.*\n"), ran.out());
    assertEquals("", ran.err());
  }

  @Test
  void theCatalogNamesThisProgram() throws IOException {
    JsonObject alias =
        JsonParser.parseString(Files.readString(Checkout.ROOT.resolve("jbang-catalog.json")))
            .getAsJsonObject()
            .getAsJsonObject("aliases")
            .getAsJsonObject("loupe");
    Matcher version =
        Pattern.compile("<artifactId>loupe</artifactId>\\s*<version>(.*)</version>")
            .matcher(Files.readString(Checkout.ROOT.resolve("pom.xml")));
    assertTrue(version.find());
    assertEquals("dev.loupe:loupe-cli:" + version.group(1), alias.get("script-ref").getAsString());
    assertEquals(Main.class.getName(), alias.get("main").getAsString());
  }

  @Test
  void showsStackTracesOnWishOnly() {
    Ran ran = Ran.loupe("generate", "x", "-n", 1000, "-v");
    assertEquals(ExitCode.BAD_USAGE, ran.code());
    assertTrue(ran.err().contains("    at dev.loupe."), ran.err());
  }

  @Test
  void aTextMayStartWithAnything(@TempDir Path folder) throws IOException {
    Path file = Files.writeString(folder.resolve("args"), "--bogus");
    assertTrue(promptLength("@" + file) > 5, "not the arguments in the file");
    assertTrue(promptLength("--", "--bogus") > 1);
    assertTrue(promptLength("\"quoted\"") > 3);
  }

  private static int promptLength(String... text) {
    Object[] args = new Object[text.length + 4];
    System.arraycopy(new Object[] {"generate", "--json", "-n", 0}, 0, args, 0, 4);
    System.arraycopy(text, 0, args, 4, text.length);
    return Ran.loupe(args).well().json().getFirst().get("prompt_len").getAsInt();
  }
}
