package dev.loupe.text;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.weights.FuzzTarget;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/** What a fuzzer attacks of tokenizers, as the readers of models do it in their own targets. */
public final class TokenizerTargets {
  private static final String TEXT = "a b, <s>ab\n\u00e9\u0301 12 ab";
  private static FuzzTarget target = bytes -> {};

  private TokenizerTargets() {}

  static Map<String, FuzzTarget> all(Path folder) throws IOException {
    Map<String, FuzzTarget> all = new LinkedHashMap<>();
    for (String name : seeds().keySet()) {
      all.put(name, of(name, Files.createDirectory(folder.resolve(name))));
    }
    return all;
  }

  /** The file that is attacked, in a folder with what it needs beside it. */
  private static FuzzTarget of(String name, Path folder) throws IOException {
    Map<String, byte[]> seeds = seeds();
    switch (name) {
      case "tokenizer_config.json", "added_tokens.json", "merges.txt" -> {
        Files.write(folder.resolve("vocab.json"), seeds.get("vocab.json"));
        Files.write(folder.resolve("merges.txt"), seeds.get("merges.txt"));
      }
      case "vocab.json" -> Files.write(folder.resolve("merges.txt"), seeds.get("merges.txt"));
      default -> {}
    }
    return bytes -> {
      Files.write(folder.resolve(name), bytes);
      try (Tokenizer tokenizer = Tokenizer.open(folder)) {
        int[] ids = tokenizer.encode(TEXT, true);
        var _ = tokenizer.decode(ids);
        var _ = tokenizer.encode(TEXT, false);
      } catch (IllegalArgumentException e) { // a text that such tokens can't spell
        throw new IOException(e.getMessage(), e);
      }
    };
  }

  /** A sound file for each target. */
  static Map<String, byte[]> seeds() {
    Map<String, String> texts = new LinkedHashMap<>();
    texts.put(
        "tokenizer.json",
        "{'version':'1.0','added_tokens':[{'id':4,'content':'<s>','special':true,'lstrip':true}],"
            + "'normalizer':{'type':'Sequence','normalizers':[{'type':'NFC'},{'type':'Replace',"
            + "'pattern':{'String':'x'},'content':'a'}]},'pre_tokenizer':{'type':'Sequence',"
            + "'pretokenizers':[{'type':'Digits','individual_digits':true},{'type':'ByteLevel',"
            + "'add_prefix_space':false,'trim_offsets':true,'use_regex':true}]},'post_processor':"
            + "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>','type_id':0}},"
            + "{'Sequence':{'id':'A','type_id':0}}],'pair':[],'special_tokens':{'<s>':{'id':'<s>',"
            + "'ids':[4],'tokens':['<s>']}}},'decoder':{'type':'ByteLevel'},'model':{'type':'BPE',"
            + "'unk_token':'u','fuse_unk':false,'vocab':{'a':0,'b':1,'ab':2,'u':3},'merges':['a b']}}");
    texts.put("vocab.json", "{'a':0,'b':1,'ab':2,'\u0120':3,'\u00c3':4,'1':5}");
    texts.put("merges.txt", "#version: 0.2\na b\n");
    texts.put(
        "tokenizer_config.json",
        "{'tokenizer_class':'GPT2Tokenizer','add_prefix_space':true,'add_bos_token':true,'bos_token':"
            + "{'content':'<s>','lstrip':false},'eos_token':'ab','model_max_length':1e30,"
            + "'added_tokens_decoder':{'9':{'content':'<s>','special':true,'normalized':false}},"
            + "'additional_special_tokens':['<x>'],'errors':'replace'}");
    texts.put("added_tokens.json", "{'<x>':9,'<y>':10}");
    texts.put("vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\nb\n##b\n1\n##2\n,\n");
    Map<String, byte[]> seeds = new LinkedHashMap<>();
    texts.forEach((name, text) -> seeds.put(name, text.replace('\'', '"').getBytes(UTF_8)));
    seeds.put(
        "spiece.model",
        new byte[] {
          0x0A, 10, 0x0A, 1, 'a', 0x15, 0, 0, (byte) 0x80, (byte) 0xBF, 0x18, 2,
          0x0A, 10, 0x0A, 1, 'b', 0x15, 0, 0, (byte) 0x80, (byte) 0xBF, 0x18, 1,
          0x12, 4, 0x18, 1, 0x28, 1, 0x1A, 4, 0x18, 1, 0x20, 1
        });
    return seeds;
  }

  public static void fuzzerInitialize(String[] args) throws IOException {
    target = of(args[0], Files.createTempDirectory("loupe-fuzz-"));
  }

  public static void fuzzerTestOneInput(byte[] bytes) {
    FuzzTarget.check(target, bytes);
  }
}
