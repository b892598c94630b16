#include "rendezvous/secret.hpp"

#include "tests/unit/rendezvous/net_tools.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>

#include <fstream>

using namespace acc;
using namespace acc::rendezvous;
using acc::rendezvous::test::Folder;
using Catch::Contains;

namespace {

const std::string kLine(40, 's');

std::string write(const Folder& folder, const std::string& name, const std::string& text,
                  mode_t mode = 0600) {
  const auto path = (folder.path / name).string();
  std::ofstream{path} << text;
  ::chmod(path.c_str(), mode);
  return path;
}

std::string hex(const JobKey& key) {
  std::string text;
  for (const unsigned byte : key) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

}  // namespace

TEST_CASE("key derivation is RFC 5869's", "[rendezvous][secret]") {
  // Test case 1 (the first 32 of its 42 bytes), test case 2, whose salt is longer than a block of
  // the hash, and test case 3, which has no salt.
  std::string salt;
  for (char c = 0; c <= 0x0c; ++c) salt += c;
  std::string info;
  for (int c = 0xf0; c <= 0xf9; ++c) info += static_cast<char>(c);
  const std::string input(22, '\x0b');
  CHECK(hex(hkdf_sha256(input, salt, info)) ==
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
  const auto eighty = [](int from) {
    std::string bytes;
    for (int c = from; c < from + 80; ++c) bytes += static_cast<char>(c);
    return bytes;
  };
  CHECK(hex(hkdf_sha256(eighty(0), eighty(0x60), eighty(0xb0))) ==
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c");
  CHECK(hex(hkdf_sha256(input, "", "")) ==
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
}

TEST_CASE("a job's key opens that job only", "[rendezvous][secret]") {
  const SecretKey a{"aaaaaaaa", SecretBytes{kLine}};
  const SecretKey b{"bbbbbbbb", SecretBytes{kLine + "."}};
  CHECK(job_key(a, "one") == job_key(a, "one"));
  CHECK(job_key(a, "one") != job_key(a, "two"));
  CHECK(job_key(a, "one") != job_key(b, "one"));
}

SCENARIO("a new secret is made", "[rendezvous][secret]") {
  const Folder folder;
  const auto path = (folder.path / "new" / "acc" / "secret").string();
  const auto id = make_secret(path);
  REQUIRE(id.has_value());
  struct stat file {};
  struct stat above {};
  REQUIRE(::stat(path.c_str(), &file) == 0);
  REQUIRE(::stat((folder.path / "new" / "acc").c_str(), &above) == 0);
  THEN("only its owner can reach it") {
    CHECK((file.st_mode & 07777U) == 0600U);
    CHECK((above.st_mode & 07777U) == 0700U);
    CHECK(file.st_size == 65);
  }
  THEN("it can be loaded and has the id that was told") {
    const auto loaded = load_secret({.flag = path});
    REQUIRE(loaded.has_value());
    CHECK(loaded->keys.at(0).id == *id);
    CHECK(loaded->keys.at(0).bytes.view().size() == 64);
  }
  THEN("it is never overwritten") {
    std::ifstream before_file{path};
    const std::string before{std::istreambuf_iterator<char>{before_file}, {}};
    const auto again = make_secret(path);
    REQUIRE(again.has_error());
    CHECK_THAT(again.error().what, Contains("exists already"));
    std::ifstream after_file{path};
    CHECK(std::string{std::istreambuf_iterator<char>{after_file}, {}} == before);
  }
  THEN("two are never the same") {
    const auto other = (folder.path / "other").string();
    REQUIRE(make_secret(other).has_value());
    CHECK(load_secret({.flag = other})->keys.at(0).id != *id);
  }
}

TEST_CASE("the first place that is named counts", "[rendezvous][secret]") {
  const Folder folder;
  const auto flag = write(folder, "flag", kLine + "1\n");
  const auto variable = write(folder, "variable", kLine + "2\n");
  std::filesystem::create_directories(folder.path / "credentials");
  std::filesystem::create_directories(folder.path / "config" / "acc");
  std::filesystem::create_directories(folder.path / "home" / ".config" / "acc");
  write(folder, "credentials/acc-secret", kLine + "3\n", 0400);
  write(folder, "config/acc/secret", kLine + "4\n");
  write(folder, "home/.config/acc/secret", kLine + "5\n");
  SecretPlaces places{.flag = flag,
                      .variable = variable,
                      .credentials_directory = (folder.path / "credentials").string(),
                      .config_home = (folder.path / "config").string(),
                      .home = (folder.path / "home").string()};
  const auto last = [&] { return load_secret(places)->keys.at(0).bytes.view().back(); };
  CHECK(last() == '1');
  places.flag.clear();
  CHECK(last() == '2');
  places.variable.clear();
  CHECK(last() == '3');
  std::filesystem::remove(folder.path / "credentials" / "acc-secret");
  CHECK(last() == '4');
  places.config_home.clear();
  CHECK(last() == '5');
  places.home.clear();
  CHECK(load_secret(places).error().code == Errc::not_found);

  SECTION("a named file that is missing is not replaced by the next place") {
    places.home = (folder.path / "home").string();
    places.variable = (folder.path / "nowhere").string();
    const auto missing = load_secret(places);
    REQUIRE(missing.has_error());
    CHECK(missing.error().code == Errc::not_found);
    CHECK_THAT(missing.error().what, Contains("nowhere") && Contains("--make_secret"));
  }
}

TEST_CASE("a secret that others can read is none", "[rendezvous][secret]") {
  const Folder folder;
  for (const mode_t mode : {0640U, 0604U, 0660U, 0644U, 0666U, 0610U}) {
    const auto path = write(folder, "open", kLine, mode);
    const auto refused = load_secret({.flag = path});
    REQUIRE(refused.has_error());
    CHECK(refused.error().code == Errc::not_permitted);
    CHECK_THAT(refused.error().what, Contains("chmod 600 " + path));
  }
  CHECK(load_secret({.flag = write(folder, "read", kLine, 0400)}).has_value());

  SECTION("systemd's credentials show their access list as the group's bits") {
    write(folder, "acc-secret", kLine, 0440);
    CHECK(load_secret({.credentials_directory = folder.path.string()}).has_value());
    write(folder, "acc-secret", kLine, 0444);
    CHECK(load_secret({.credentials_directory = folder.path.string()}).has_error());
  }
  SECTION("another user's file is refused") {
    if (::geteuid() != 0) return;  // nobody else could give a file away
    const auto path = write(folder, "foreign", kLine);
    REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
    const auto refused = load_secret({.flag = path});
    REQUIRE(refused.has_error());
    CHECK_THAT(refused.error().what, Contains("belongs to another user"));
  }
}

TEST_CASE("what is no secret is refused with the line", "[rendezvous][secret]") {
  const Folder folder;
  const auto refusal = [&](const std::string& text) {
    return load_secret({.flag = write(folder, "f", text)}).error().what;
  };
  CHECK_THAT(refusal("short\n"), Contains("line 1 is too short: 5 characters"));
  CHECK_THAT(refusal("# mine\n\n" + kLine + "\nshort\n"), Contains("line 4 is too short"));
  CHECK_THAT(refusal(""), Contains("is empty"));
  CHECK_THAT(refusal("# only a comment\n"), Contains("is empty"));
  CHECK_THAT(refusal(kLine + '\xff'), Contains("not plain text"));
  CHECK_THAT(refusal(std::string(20'000, 'x')), Contains("larger than 16 KiB"));
  std::string many;
  for (int i = 0; i < 9; ++i) many += kLine + std::to_string(i) + "\n";
  CHECK_THAT(refusal(many), Contains("more than 8"));
  CHECK_THAT(load_secret({.flag = folder.path.string()}).error().what,
             Contains("not a regular file"));
  const auto pipe = (folder.path / "pipe").string();
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THAT(load_secret({.flag = pipe}).error().what, Contains("not a regular file"));
  // None of it shows what is in the file.
  CHECK_THAT(refusal("password\n"), !Contains("password"));
}

TEST_CASE("a file may hold several secrets, for a change", "[rendezvous][secret]") {
  const Folder folder;
  const auto loaded = load_secret(
      {.flag = write(folder, "two", "# new\n" + kLine + "new\n# old\r\n  " + kLine + "old \r\n")});
  REQUIRE(loaded.has_value());
  REQUIRE(loaded->keys.size() == 2);
  CHECK(loaded->keys[0].bytes.view() == kLine + "new");
  CHECK(loaded->keys[1].bytes.view() == kLine + "old");
  CHECK(loaded->keys[0].id != loaded->keys[1].id);
  CHECK(loaded->keys[0].id.size() == 8);
}

TEST_CASE("any bytes are an identity or none", "[rendezvous][secret]") {
  const auto identity = psk_identity("0a1b2c3d", "job:with:colons");
  const auto parsed = parse_psk_identity(identity);
  CHECK(parsed.key_id == "0a1b2c3d");
  CHECK(parsed.job == "job:with:colons");
  for (const std::string bad : {"", "acc1", "acc1:", "acc1:0a1b2c3d",
                                "acc1:0a1b2c3d:", "acc2:0a1b2c3d:j", "acc1:0a1b2c3:job"})
    CHECK(parse_psk_identity(bad).key_id.empty());
  CHECK(parse_psk_identity("acc1:0a1b2c3d:" + std::string(201, 'j')).key_id.empty());
}
